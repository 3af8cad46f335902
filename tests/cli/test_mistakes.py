"""Mistakes on the command line: one line says what mends each, and nothing is made."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import comparisons
import pytest
from captures import pcap, write_many
from comparisons import SECOND
from exchanges import ping
from experiment_folders import write_run
from program import in_process
from published_trees import write_tree
from sites import FILE as CLAIMED
from stamps import write_stamps
from two_clocks import TwoClocks

from tailtap.cli.datapath import forward
from tests.simulation.clocks import Clock
from tests.simulation.traffic import START_NS

ROOT = Path(__file__).parents[2]
EXPERIMENT = "name: e\ntraffic: {cpu: 0}\ndut: {platform: wire}\n"
DEVICE = "name: a\ndut: {cpus: [1]}\ntraffic: {rate: 10 kpkt/s}\n"
LAB = """\
hosts:
  dut:
    ssh: dut
    power: {kind: command, status: a, switch_on: b, switch_off: c}
  other: {ssh: other}
cables: []
roles: {dut: dut, generator: other, timestamper: other}
"""
VALUES = {"--hold-for": "'2 ms'", "--limit": "'1 kpkt/s'"}
IN_KERNEL = {"--xdp", "--both-ways", "--json", "--quiet"}
PAIR, CLOCKS = "evaluate in.pcap out.pcap", "evaluate clocks/ingress.stamps clocks/egress.stamps"
NO_TIME = "--within: give a time above zero"
HUGE = "1e999999999"
"""Whoever computes it is at it for hours."""

STEPPED = " ".join(f"stepped/back-{side}.stamps" for side in ("before", "after"))

WRONG: dict[str, list[tuple[str, str]]] = {
    "": [
        ("rnu e.yaml", "there is no command 'rnu': did you mean 'run'? (see `tailtap --help`)"),
        ("evalaute", "'evalaute'"),
        ("completion tcsh", "bash"),
        ("flow x", "there is no command 'flow'"),
        ("tap lo --write picture.png --format pcap", "remove it or choose another --write"),
    ],
    "run": [
        ("", "missing argument 'EXPERIMENT' (see `tailtap run --help`)"),
        ("none.yaml --check", "none.yaml: cannot read the experiment: No such file"),
        ("folder --check", "folder: this is a folder: give the experiment file (YAML)"),
        ("empty.yaml --check", "empty.yaml:1: an experiment is a mapping with at least"),
        ("picture.png --check", "picture.png: this is no experiment file: it is not UTF-8"),
        ("sixteen.yaml --check", "sixteen.yaml: this is no experiment file: it is not UTF-8"),
        ("'my file.yaml' --check", "my file.yaml:2: traffic.cpu: 'zero' is wrong, wanted: CPU"),
        ("e.yaml --resume", "--resume needs --out DIR"),
        ("e.yaml --check --set", "option '--set' requires an argument"),
        ("e.yaml --check --set rate=5", "--set 'rate=5': rate: unknown key: "),
        ("e.yaml --check --set traffic.rate", "write it as path=value"),
        ("e.yaml --check --set traffic.rate=1", "--set 'traffic.rate=1': traffic.rate: 1 has no"),
        ("e.yaml --check --sett x=1", "no such option '--sett'"),
        ("e.yaml --check --resume --out out", "--check asks about the whole experiment: leave"),
        ("e.yaml --check --set scale=papers", "e.yaml has no scales"),
        (f"a.yaml --set traffic.rate={HUGE}kpkt/s", HUGE),
        (f"a.yaml --set \"require=['p99<{HUGE}ms']\"", HUGE),
        ("e.yaml --against none.yaml", "none.yaml"),
        ("e.yaml --against-set 'traffic.rate=1 kpkt/s'", "--against-set is for --against BASE"),
    ],
    "run a.yaml --against a.yaml": [
        ("--at worst", "--at 'worst' is no percentile: give one such as 99.9"),
        ("--at p100", "a percentile lies between p0 and p100"),
        ("--worse-than '2000 %'", "--worse-than: "),
        ("--within '0 s'", NO_TIME),
        ("--check", "--against goes with none of --testbed, --check, --resume, --live and"),
        ("--set \"vary.traffic.size=['64 B', '128 B']\"", "only one configuration is held"),
        ("--against-set 'traffic.rat=1 kpkt/s'", "unknown key: did you mean 'rate'?"),
    ],
    "improve a.yaml": [
        ("", "nothing: give one percentile, such as 'p99.9 < 1 ms'"),
        ("--require 'loss == 0'", "loss == 0: give one percentile"),
        ("--require 'p99 <'", "p99 <"),
        ("--require 'p99 < 1 ms' --within 5", "--within: "),
        ("--require 'p99 < 1 ms' --within '0 s'", NO_TIME),
        ("--require 'p99 < 1 ms' --margin 0", "--margin: give a share from 1 %"),
        ("--require 'p99 < 1 ms' --set \"vary.traffic.size=['64 B', '128 B']\"",
         "an improvement looks at one configuration"),
        ("--require 'p99 < 1 ms' --set dut.platform=wire", "wire has no device, and so nothing"),
        ("--require 'p99 < 1 ms' --set dut.tuning=full", "full asks for words of the kernel's"),
    ],
    "search e.yaml": [
        ("--to 5", "--to: 5 has no unit: write '5 pkt/s'"),
        ("--loss half", "'half' is not a share: write per cent ('0.5%')"),
        ("--loss 100%", "below 100 %"),
        (f"--loss {HUGE}", HUGE),
        ("--loss 5", "--loss: '5' is more than everything: write per cent as '5%'"),
        ("--loss 0 --loss 0%", "twice"),
        ("--from '3 Mpkt/s'", "--from 3 Mpkt/s is not below --to 2 Mpkt/s"),
        ("--precision 0", "--precision must be at least 0.01 %"),
        ("--exceed 1", "--exceed"),
        ("--trials 0", "--trials"),
        ("--trial '1 h'", "more packets than the 32-bit ids can tell apart"),
        ("--from '1 pkt/s' --short '1 ms'", "not a single packet fits in --short 1 ms"),
        ("--set 'traffic.rate=5 kpkt/s'", "the search chooses the rate"),
        ("--set \"vary.traffic.rate=['1 kpkt/s']\"", "traffic.rate: the search chooses it"),
        ("--set 'cases=[{traffic.duration: 1 s}]'", "traffic.duration: the search chooses it"),
        ("--latency-at 0", "--latency-at must be above 0"),
        ("--set 'traffic.pattern={kind: ramp, to: 20 kpkt/s, over: 1 s}'", "a ramp has no rate"),
        ("--resume", "--resume needs --out"),
    ],
    "observe --out made": [
        ("eth0 vm:x/eth1", "an interface is in one of these places: NETNS, container:NAME"),
        ("eth0@both", "names no interface"),
        ("eth0 --look '0 s'", "give a time above zero"),
        ("eth0 --cpus 1,1", "--cpus '1,1' is no list of CPUs"),
        ("eth0 --served hands", "does not say by what packets are served"),
        ("eth0 --served softirq --served task:1", "each names its node"),
        ("eth0 --sample 1/3", "3 is no power of two"),
        ("eth0 --budget '3 s'", "--budget: '3 s' is not a share"),
        ("eth0 --for soon", "--for: 'soon' is not a time"),
    ],
    "forward a b": [
        ("--hold-for '2 ms'", "--hold-for holds nothing: name the packets with --hold"),
        ("--queue 0", "--limit"),
        ("--both-ways", "--xdp"),
        *((f"--xdp native {name} {VALUES.get(name, '0')}",
           f"tailtap: --xdp redirects every packet in the kernel: leave out {name}")
          for name in sorted({one.opts[0] for one in forward.params} - IN_KERNEL)
          if name.startswith("--")),
    ],
    "generate": [
        ("eth9 --rate 10 --count 5", "--rate: 10 has no unit: write '10 pkt/s'"),
        ("a --rate '1 kpkt/s' --count 1 --next --rate '1 kpkt/s'", "missing argument 'INTERFACE'"),
        *((f"a --rate '1 kpkt/s' --count 1 --next b --rate '1 kpkt/s' --count 1 {words}",
           f"{words.split()[0]} is of all flows") for words in ("--cpu 1", "--json", "--quiet")),
    ],
    "evaluate": [
        ("", "missing argument 'INGRESS' (see `tailtap evaluate --help`)"),
        ("in.pcap", "give the capture from behind the device as well"),
        ("in.pcap missing", "missing: No such file"),
        ("picture.png out.pcap", "picture.png: not a capture that tailtap reads"),
        ("out.pcap in.pcap", "give the capture from before the device first"),
        ("*.none e.yaml", "*.none: no file has such a name"),
        ("e.yaml --egress copy:2", "of one capture, say both or neither"),
        ("e.yaml e.yaml --direction up", "'up' is not one of 'there', 'back', 'both'"),
        ("e.yaml e.yaml --ingress eth0", "'eth0' chooses no packets: give interface:NUMBER"),
        ("requests.pcap answers.pcap --match packets", "no packet of"),
        ("requests.pcap --match packets", "--ingress SELECT --egress SELECT"),
        ("answers.pcap requests.pcap --match transactions", "give the capture of the requests"),
        ("both.pcap --match transactions --egress-ahead '1 us..2 us'", "are of one clock"),
        ("both.pcap --match transactions --jobs 2", "in one piece"),
        ("both.pcap --match transactions --key packet-nat", "is of packets"),
        ("both.pcap --match transactions --window '1 ns'", "none of"),
        ("both.pcap --match transactions --filter-after udp", "of the second capture: give two"),
        ("runs --egress-ahead '0 s..1 us'", "for two captures: a run knows how its clocks stood"),
        ("runs --out runs", "the folder is not empty"),
        ("runs --out new --replace", "leave --replace out"),
        ("runs --format pcap", "--format, --nanoseconds, --stamps and --key-after are for two"),
        ("runs --key-after ip.id", "--key-after are for two captures"),
        ("runs --losses 5", "the table 'losses' of results.duckdb"),
        ("stamped --trim '10 ms'", "1 of 1 runs have results with other settings"),
        ("runs --scheduler tcp://127.0.0.1:1 --jobs 2", "--jobs"),
    ],
    PAIR: [
        ("--tirm '1 s'", "no such option '--tirm'. (Did you mean one of: '--from', '--trim'?)"),
        ("--worst -1", "'--worst'"),
        ("--key nonsense", "nonsense"),
        ("--key-after ip.id", "--key"),
        ("--key -4:4:le --key-after -2:2:le", "is found on both sides by the same width"),
        ("--trim '1 parsec'", "--trim: '1 parsec'"),
        (f"--trim {HUGE}s", HUGE),
        ("--trim 1", "--trim: 1 has no unit: write '1 s'"),
        ("--window 5sec", "--window: '5sec' is not a time: write"),
        ("--percentiles 101", "101"),
        ("--format pcapp", "pcapp"),
        ("--filter 'udp prot 5'", "syntax error"),
        ("--stamps trailer", "leave --stamps trailer out"),
        ("--chunk '0 B'", "--chunk"),
        ("--scheduler nonsense", "this is no address"),
    ],
    CLOCKS: [
        ("--egress-ahead '5 us..-3 us'", "is reversed: write the least first, '-3 us..5 us'"),
        ("--egress-ahead '5 us'", "write the least and the most"),
        ("--egress-ahead '0 s..6 s'", "as long as --window, 5 s"),
        ("--egress-ahead '0 s..1 us' --back in.pcap out.pcap", "give one of them"),
        ("--back clocks/back-before.stamps none.stamps", "occurs once in each"),
        ("--back clocks/back-before.stamps empty.stamps", "there is no packet in the capture"),
        ("--back later-before.stamps later-after.stamps", "there and back are of different times"),
    ],
    "evaluate stepped/ingress.stamps stepped/egress.stamps": [
        (f"--back {STEPPED}", "give the capture with the clock of EGRESS first"),
    ],
    "report": [
        ("e.yaml", "e.yaml: this is a file: give the folder that `tailtap run` or"),
        ("none", "none: no such folder; give the folder that `tailtap run` wrote"),
        ("folder", "no runs in it"),
        ("failed", "interface tt-tap0 vanished during the run"),
    ],
    "model": [
        ("picture.png", "picture.png: this is a file: give the folder"),
        ("folder", "no runs in it"),
        ("runs --fit some", "--fit"),
    ],
    "explain": [
        ("folder", "folder: no runs in it"),
        ("runs", "in the experiment file or with `tailtap run --set trace=thin`"),
        ("partly", "it was imported, and only runs of tailtap have a trace"),
    ],
    "interrupts": [("runs", "no samples of interrupts")],
    "export": [
        ("folder --to excel", "--to excel: unknown format; give parquet, csv"),
        ("folder --to csv", "no runs in it"),
        ("nowhere --to csv", "no such folder"),
        ("failed --to csv", "no run of it was finished"),
        ("failed/runs/001-vm-10000-1 --to csv", "no run of it was finished"),
        ("runs --to postgresql", "unknown format"),
        ("runs --to csv://x", "unknown format"),
        ("runs --to mysql://user:secret@localhost/x", "--to mysql: unknown format"),
        ("runs --to postgresql://localhost/x --out made", "--out is for files"),
        ("clocks/evaluated --to csv", "no other format has a place"),
        ("clocks/evaluated --to hgrm", "no other format has a place"),
    ],
    "import": [
        ("folder", "folder: no result files in it"),
        ("nowhere", "no such folder"),
        ("tree --into others.duckdb", "runs are imported as folders: give a folder by --into"),
    ],
    "verdict": [
        ("", "give the folders to judge, or --list-profiles"),
        ("runs --require 'p99 < 1'", "'p99 < 1': 1 has no unit"),
        (f"runs --require 'p99<{HUGE}ms'", HUGE),
        ("runs --profile urlc-5g", "did you mean 'urllc-5g'?"),
        ("runs --confidence 95 --require 'loss == 0'", "--confidence"),
        ("runs --confidence '100 %' --require 'loss == 0'", "--confidence"),
        ("runs --runs vm --require 'loss == 0'", "no run fits"),
        ("folder --require 'loss == 0'", "no runs in it"),
        ("missing --require 'loss == 0'", "no such folder"),
        ("runs/runs/001-wire-10000-1/evaluation", "nothing is required"),
        ("clocks/evaluated --require 'p99 < 10 us'", "is about less than the clocks of its"),
    ],
    "compare": [
        ("folder", "no runs in it"),
        ("published", "tailtap import"),
        ("runs", "no run of a device can be compared"),
        ("slow stamped", "the runs are of different traffic"),
        ("invalid", "did not send the requested load"),
        ("failed/runs/001-vm-10000-1", "vanished during the run"),
        ("stamped", "only one configuration with good runs"),
        ("stamped --percentile most", "--percentile 'most'"),
        ("stamped --percentile 50,99", "--percentile '50,99'"),
        ("partly", "no percentiles are published of it"),
        ("stamped slow --worse-than '0 %'", "above 0"),
        ("stamped slow --worse-than some", "--worse-than"),
        ("stamped slow --bisect", "give that, too"),
    ],
    "history": [
        ("add stamped --commit unknown --history new.duckdb", "nothing says when"),
        ("add stamped --commit a --history new.duckdb --date tomorrow", "is no date"),
        ("add stamped --commit ' ' --history new.duckdb", "--commit is empty"),
        ("add none --commit a --history new.duckdb", "no such folder"),
        ("show --history new.duckdb", "`tailtap history add` makes it"),
        ("show --history empty.yaml", "no history"),
    ],
    "host": [
        ("aply", "there is no command 'aply': did you mean 'apply'?"),
        ("audit --cpus 4096", "--cpus: this machine has no CPU 4096: it has"),
        ("audit --cpus x", "--cpus x: this is no list of CPUs"),
        ("audit --role bare", "'bare' is not one of 'bare-metal', 'container'"),
        ("audit stat-intervall", "no knob or group 'stat-intervall': did you mean"),
        ("audit --cpus 0 --housekeeping 0", "--cpus and --housekeeping both have CPU 0"),
        (f"apply --cpus 0-{(os.cpu_count() or 1) - 1}", "leaves no housekeeping core"),
        ("apply --dry-run --interface none0", "--interface: there is no 'none0'"),
        ("apply --dry-run skew-tick", "skew-tick is set on the kernel's command line"),
        ("apply --dry-run swap", "swap cannot be set by tailtap"),
        ("bootline --install --remove", "--install and --remove exclude each other"),
        ("bootline --loader grub", "--loader is for --install"),
        ("bootline --remove --entry a.conf", "--entry is for --install"),
        ("bootline --dry-run", "--dry-run is for --install and --remove"),
        ("bootline --with nohz-ful", "no knob or group 'nohz-ful': did you mean 'nohz-full'"),
        ("bootline hung-task", "hung-task is no word of the kernel's command line"),
        ("bootline --cpus 9999", "--cpus: this machine has no CPU 9999"),
        ("export", "--format"),
        ("export --format tund", "'tund' is not one of 'tuned', 'sysctl', 'ansible'"),
        ("export --format tuned --out e.yaml", "is there, and is no export: name another file"),
        ("export --format tuned nothing", "there is no knob or group 'nothing'"),
    ],
    "publish partly": [("", "partly: its runs are imported: whoever measured them publishes them")],
    "publish claimed": [
        ("--anonymous --author 'A B'", "leave out --author"),
        ("--allow names", "serials, macs"),
        ("--license 'my own'", "SPDX"),
        ("--author 'A B <0000-0002-1825-0098>'", "ORCID"),
        ("--captures refer=zenodo", "refer=URL"),
        ("--out folder/..", "no site"),
    ],
    "reproduce": [
        ("folder", "no site.json in it, no crate"),
        ("partly", "these are runs: give what `tailtap publish` made of them"),
        ("nothing", "no such folder"),
        ("folder --out x", "add --level small"),
        ("folder --fetch 2", "2 has no unit"),
        ("http://127.0.0.1:1/site", "Connection refused"),
    ],
    "testbed power": [
        ("lab.yaml other on", "hosts.other.power: this key is missing"),
        ("lab.yaml third on", "has no host third: there are dut, other"),
        ("magic.yaml dut on", "magic.yaml:4: hosts.dut.power: kind: there is no power"),
        ("lab.yaml dut explode", "explode"),
    ],
}  # fmt: skip
"""By how their words begin, with exit status 2."""
BISECTING = "--worse-than '50 %' --bisect"
OTHERS = [
    ("verdict runs --require 'loss == 0' --junit missing/verdict.xml", 3, "--junit"),
    ("compare stamped slower --worse-than '50 %' --markdown none/gate.md", 3, "--markdown"),
    ("host export --format tuned --out e.yaml/x", 3, "x: cannot write: Not a directory: name an"),
    ("report runs --out e.yaml", 3, "cannot write the report: File exists"),
    ("trace --cpus 0 --out e.yaml", 3, "e.yaml: cannot make the folder of the trace: File exists"),
    ("history add stamped --commit a --history folder/text.duckdb --date 2026-11-26", 3, ""),
    ("export runs --to postgresql:///x?host=folder", 3, "--to"),
    # `git bisect run` takes 2 and 3 for bad, and goes on with the wrong half.
    (f"compare stamped none {BISECTING}", 128, "none"),
    (f"compare stamped {BISECTING}", 128, ""),
    (f"compare stamped slower --at p200 {BISECTING}", 128, "p200"),
    (f"compare stamped slower --unknown {BISECTING}", 128, "--unknown"),
    (f"compare stamped invalid {BISECTING}", 125, "no good run"),
    ("compare stamped invalid --worse-than '50 %'", 3, "no good run"),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files and results of all kinds, whole and not."""
    home = tmp_path_factory.mktemp("home")
    written = {"e": EXPERIMENT, "a": DEVICE, "empty": "", "lab": LAB,
               "my file": EXPERIMENT.replace("cpu: 0", "cpu: zero"),
               "magic": LAB.replace("command", "magic")}  # fmt: skip
    for name, text in written.items():
        (home / f"{name}.yaml").write_text(text)
    (home / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (home / "sixteen.yaml").write_bytes(EXPERIMENT.encode("utf-16"))
    (home / "folder").mkdir()
    (home / "published").mkdir()
    (home / "published/latencies-pre-rate1.pcap.zst.trim_ms0.hist.csv").touch()
    times = [SECOND + 10_000 * number for number in range(300)]
    write_many(home / "in.pcap", times, range(300))
    write_many(home / "out.pcap", [time + 500 for time in times], range(300))
    asks = [(time, ping(True, number)) for number, time in enumerate(times)]
    says = [(time + 50, ping(False, number)) for number, time in enumerate(times)]
    for name, packets in (("requests", asks), ("answers", says), ("both", sorted(asks + says))):
        (home / f"{name}.pcap").write_bytes(pcap(packets))
    TwoClocks(Clock(3_000_000)).write(home / "clocks", 1)
    TwoClocks(Clock(step_ns=1_000_000, step_at_ns=START_NS + 1_500_000_000)).write(
        home / "stepped", 1
    )
    back = [home / f"clocks/back-{side}.stamps" for side in ("before", "after")]
    pair = [home / f"clocks/{side}.stamps" for side in ("ingress", "egress")]
    evaluated = in_process("evaluate", *pair, "--back", *back, "--out", home / "clocks/evaluated")
    assert evaluated.returncode == 0, evaluated
    write_stamps(home / "none.stamps", range(START_NS, START_NS + 100), range(10**6, 10**6 + 100))
    write_stamps(home / "empty.stamps", [], [])
    for side, delay in (("before", 3_000_000), ("after", 20_000)):
        later = [START_NS + 10**11 + place * 10_000 + delay for place in range(100)]
        write_stamps(home / f"later-{side}.stamps", later, range(100))
    write_run(home / "runs", 1, {"dut.platform": "wire"}, packets=1_000)
    write_run(home / "failed", 1, {"dut.platform": "vm"}, status="failed",
              error="interface tt-tap0 vanished during the run")  # fmt: skip
    stamped: tuple[tuple[str, dict[str, Any]], ...] = (
        ("stamped", {"changes": {"started": None}}), ("slower", {"scale": 4.0}),
        ("slow", {"rate": 5_000}), ("invalid", {"changes": {"valid": False}}),
    )  # fmt: skip
    for name, more in stamped:
        comparisons.write_run(home / name, 1, {"dut.platform": "vm"}, packets=1_500, **more)
    shutil.copytree(home / "stamped", home / "claimed")
    (home / "claimed/experiment.yaml").write_text(CLAIMED)
    _, tree = write_tree(home / "made", packets=300)
    tree.rename(home / "tree")
    for path in shutil.copytree(home / "tree", home / "lacking").rglob("*percentiles*"):
        path.unlink() if "bare-metal" in str(path) else None
    assert in_process("import", home / "lacking", "--into", home / "partly").returncode == 0
    (home / "folder/text.duckdb").write_text("no database")
    return home


def cases() -> Iterator[tuple[str, int, str]]:
    for begins, rows in WRONG.items():
        yield from ((f"{begins} {words}", 2, said) for words, said in rows)
    yield from OTHERS


@pytest.mark.parametrize(("words", "status", "said"), list(cases()))
def test_a_mistake_is_one_line(
    home: Path, monkeypatch: pytest.MonkeyPatch, words: str, status: int, said: str
) -> None:
    monkeypatch.chdir(home)
    there = sorted(path.name for path in home.iterdir())
    done = in_process(*shlex.split(words))
    assert done.returncode == status, done
    *before, last = done.stderr.splitlines()
    assert last.startswith("tailtap: ") and said in last, done
    assert all(
        line.startswith((f"{words.split(maxsplit=1)[0]}: ", "warning: ")) for line in before
    ), done
    assert sorted(path.name for path in home.iterdir()) == there
