"""README, tutorials and how-to pages are typed as they stand, line by line, on what they made.

The experiment files that the pages print are made shorter, and nothing else is changed.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from labtools import Machine, own_machine
from read_pages import TAPPING, files, run, steps

from tailtap.analysis.evaluation import Evaluation

# What they apply and revert is the whole machine's.

ROOT = Path(__file__).parents[2]
PAGES = (
    "docs/tutorial/researcher.md",
    "README.md",
    "docs/tutorial/two-captures.md",
    "docs/tutorial/forwarder-developer.md",
    "docs/howto/busy.md",
    "docs/howto/experiments.md",
    "docs/howto/published-results.md",
    "docs/howto/parts.md",
)
SHORTER = {
    r"duration: \d+ s": "duration: 300 ms, slip_limit: 10 s",
    r"warm_up: [1-9][^,}]*": "warm_up: 100 ms",
    r"trim: \d+ ms": "trim: 50 ms",
    r"\[10 kpkt/s, 50 kpkt/s, 100 kpkt/s\]": "[10 kpkt/s]",
}
"""What becomes of the files: fewer and shorter runs; a busy host may have packets sent late."""
MORE = {
    "search": "--to '20 kpkt/s' --trial '300 ms' --short '100 ms' --no-latency",
    "run mine.yaml --set trace=none": "--within '1 s'",
    "evaluate before.pcap after.pcap --trim": "--trim '50 ms'",
    "host noise": "--for '1 s'",
}
"""What takes its times from options alone, or leaves out what warms up."""
AS_ROOT = f"""\
sudo() {{ "$@"; }}
make() {{ command make --no-print-directory -f {ROOT}/Makefile -o setup SUDO= "$@"; }}
"""
"""Root needs no sudo, and the tests have set up what `make` would."""


def shortened(text: str) -> str:
    for old, new in SHORTER.items():
        text = re.sub(old, new, text)
    return text


@pytest.mark.apart
@pytest.mark.timeout(900)
def test_every_command_works_as_it_stands(machine: Machine, tmp_path: Path) -> None:
    """All pages in one folder."""
    (tmp_path / ".venv").symlink_to(Path(sys.prefix))
    (tmp_path / "examples").mkdir()
    for example in (ROOT / "examples").glob("*.yaml"):
        (tmp_path / "examples" / example.name).write_text(shortened(example.read_text()))
    texts = [(ROOT / page).read_text() for page in PAGES]
    for name, content in (file for text in texts for file in files(text)):
        path = tmp_path / name
        assert not path.exists(), name
        path.write_text(shortened(content))
    every = steps(*texts)
    assert len(every) > 30
    shell = machine.command("bash")
    try:
        results = run(every, shell, tmp_path, AS_ROOT, MORE, timeout=860)
    finally:  # what the pages put back themselves, if they were not cut off
        machine.tailtap("host", "revert", "--quiet")
    for step, (status, output) in zip(every, results, strict=True):
        assert status in step.statuses, (step.command, status, output)
        assert "Traceback" not in output, (step.command, output)
        if step.statuses == [0]:
            # What is measured differs; what is measured is called the same.
            for word in re.findall(r"^ *([a-z][a-z0-9.]*) ", step.shown, re.M):
                assert re.search(rf"^ *{re.escape(word)}\b", output, re.M), (step.command, word)
    [(_, demo)] = [one for step, one in zip(every, results, strict=True)
                   if step.command == "make demo"]  # fmt: skip
    assert re.search(r"^002-bare-metal: \d+ of \d+ packets? later than p99.9, ", demo, re.M), demo


SUPPORT = ROOT / "tests/support"
QUERIES = 300
POD = """\
set -eu
mount --make-rprivate /
mkdir -p /var/lib/cni cni && mount --bind cni /var/lib/cni
ip link set lo up
gcc -static -O2 -o program "$SUPPORT/image/program.c"
printf '%s\\n' 'FROM scratch' 'COPY program /program' > Containerfile
echo 'ENTRYPOINT ["/program", "answer", "53"]' >> Containerfile
podman build --quiet --isolation chroot --tag localhost/tt-answer . > built
trap 'podman pod rm --force --time 0 shop > /dev/null' EXIT
podman pod create --name shop --network podman > /dev/null
podman run --detach --pod shop --name answer localhost/tt-answer > /dev/null
sudo() { "$@"; }
asking() {
    "$PYTHON" "$SUPPORT/dns_by_hand.py" client "$ADDRESS" 53 "$1" 1 0.001
}
ADDRESS=$(nsenter --target "$(podman inspect --format '{{.State.Pid}}' answer)" --net \\
    ip -oneline -4 address show eth0 | sed 's|.*inet \\([0-9.]*\\)/.*|\\1|')
asking 1
"""
"""A pod that answers queries, in the folder; the commands of the page follow."""


def commands() -> str:
    """The page's commands; while a tap stamps, somebody asks."""
    lines: list[str] = []
    for step in steps((ROOT / "docs/howto/pods.md").read_text()):
        if "tailtap tap" in step.command:
            lines += [f"{step.command} 2> said &", TAPPING.format("said"), f"asking {QUERIES}"]
            lines += ["wait $! || { cat said >&2; exit 1; }", "rm said"]
        else:
            lines.append(step.command)
    return "\n".join(lines)


@pytest.mark.timeout(240)
def test_a_pod_is_observed_as_the_page_says(tmp_path: Path) -> None:
    (tmp_path / ".venv").symlink_to(Path(sys.prefix))
    most = int(subprocess.run(["sh", "-c", "ulimit -Hn"], capture_output=True, check=True).stdout)
    (tmp_path / "containers.conf").write_text(
        f'[containers]\ndefault_ulimits = ["nofile=1024:{most}", "nproc=1024:1024"]\n'
        '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "none"\nlock_type = "file"\n'
        'runtime = "runc"\n'
    )
    (tmp_path / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{tmp_path}/graph"\nrunroot = "/run/tt-test-pod"\n'
    )
    script = tmp_path / "page.sh"
    script.write_text(POD + commands())
    variables = {
        "CONTAINERS_CONF": tmp_path / "containers.conf",
        "CONTAINERS_STORAGE_CONF": tmp_path / "storage.conf",
        "SUPPORT": SUPPORT,
        "PYTHON": sys.executable,
    }
    try:
        with own_machine() as machine:
            done = machine.run(
                "env", "--chdir", str(tmp_path), *(f"{k}={v}" for k, v in variables.items()),
                "bash", str(script),
            )  # fmt: skip
    finally:
        subprocess.run(["rm", "-rf", "--one-file-system", "/run/tt-test-pod"], check=True)
    assert done.returncode == 0, done.stderr
    assert re.search(r"Cpus_allowed_list:\s+0", done.stdout), done.stdout
    way = Evaluation.load(tmp_path / "way")
    assert way.counts.lost == 0
    assert way.counts.matched >= QUERIES
    [dns] = (tmp_path / "answers").glob("*dns*")
    assert Evaluation.load(dns).counts.matched == QUERIES


PAGE = ROOT / "docs/howto/reproduce.md"
BEFORE = """\
tailtap run e.yaml --out archive --quiet
tailtap publish archive --out made --quiet
mv made site
"""
HELD = list(range(0, 2_000, 8))
"""Every eighth packet waits in the device for longer than a busy machine makes so many wait."""
REPEATED = f"""\
name: repeated
dut: {{cpus: [1], forwarder: {{fault: {{hold: {{ids: {HELD}, time: 150 ms}}}}}}}}
traffic: {{rate: 2 kpkt/s, duration: 800 ms, warm_up: 100 ms, cpu: 0, slip_limit: 10 s}}
vary: {{dut.platform: [wire, bare-metal]}}
repeat: 3
claims:
  - {{id: adds, says: A device adds time., for: {{dut.platform: bare-metal}},
     against: {{dut.platform: wire}}, at: p95, is: worse}}
  - {{id: magic, says: It takes none., for: {{dut.platform: bare-metal}}, require: [median < 1 ns]}}
  - {{id: tail, says: Its tail is short., require: [p99.9999 < 1 s]}}
scales:
  tiny: {{traffic.duration: 400 ms}}
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_published_moved_and_measured_again(tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_text(REPEATED)
    typed = steps(f"```sh\n{BEFORE}```\n", PAGE.read_text())
    here = f'sudo() {{ "$@"; }}\nPATH={sys.prefix}/bin:$PATH\n'
    *made, captures, small = run(typed, ["bash"], tmp_path, here, {"reproduce": "--json"}, 800)
    assert [status for status, _ in made] == [0, 0, 0], made
    status, output = captures
    assert (status, answers(output)) == (0, {"checksums": "reproduced", "captures": "reproduced"})
    status, output = small
    assert status == 1, output
    steps_of = answers(output)
    # Its captures are elsewhere, and this command does not say where.
    assert (steps_of["captures"], steps_of["figures"]) == ("not shown", "reproduced")
    found = json.loads(output.splitlines()[-1])
    claims = {claim["id"]: claim for claim in found["claims"]}
    assert {name: claim["answer"] for name, claim in claims.items()} == {
        "adds": "reproduced",
        "magic": "contradicted",
        "tail": "not shown",
    }, claims
    assert claims["adds"]["here"]["evidence"][0]["runs"] == 3
    # It is the same machine, measured at the smallest scale.
    assert [one["what"] for one in found["differences"] if one["machine"]] == []
    run_of = json.loads(next((tmp_path / "here/runs").glob("001-*/run.json")).read_text())
    assert run_of["parameters"]["traffic"]["duration"] == 400_000_000


def answers(output: str) -> dict[str, str]:
    return {one["level"]: one["answer"] for one in json.loads(output.splitlines()[-1])["steps"]}
