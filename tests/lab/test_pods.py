"""The page about pods is followed, command by command, with a pod of Podman's."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from labtools import own_machine

from tailtap.analysis.evaluation import Evaluation

ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "tests/support"
QUERIES = 300
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
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
    for block in BLOCK.findall((ROOT / "docs/howto/pods.md").read_text()):
        for line in block.splitlines():
            if "tailtap tap" in line:
                asked = line.replace("'5 s'", "'3 s'")
                lines += [f"{asked} &", "sleep 1.5", f"asking {QUERIES}", "wait $!"]
            else:
                lines.append(line)
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
