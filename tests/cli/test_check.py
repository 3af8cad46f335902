"""`tailtap run --check` on every experiment that ships, at each of its scales."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from forms import fits
from program import TAILTAP, in_process, one_line_error

from tailtap.experiment.reading import read_experiment
from tailtap.lab.topology.graphs import Cables

EXAMPLES = Path(__file__).parents[2] / "examples"
LACKING = re.compile(
    r"there is no (CPU|interface) |has no KVM|vfio-pci|^dut\.((host_)?(kernel|boot)|cgroup|irq): "
    r"|^dut\.functions: links of|^dut\.tuning: dut\.cpus .* leave no other CPU|make room"
    r"|is missing on|make forwarders|this machine cannot|this kernel has no|a run needs root"
)
"""What a machine may lack for what a paper did. Nothing else may prevent it."""
REASONS = """\
name: e
traffic: {cpu: 0}
dut: {cpus: [1]}
differs: [it is small]
cases:
  - {dut.platform: wire, traffic.rate: 1 kpkt/s}
  - {dut.platform: bare-metal, traffic.rate: 2 kpkt/s}
vary: {dut.kernel: ['0.1', '0.2']}
repeat: 2
"""
NETWORK = """\
name: network
dut:
  forwarder: kernel-route
  cpus: [1]
  irq: none
  nodes: {fw: {forwarder: tc-mirred}, r: {count: 3}}
  links: [in - fw - r1 - r2 - out, fw - r3 - out]
  flows:
    a: {path: [in, fw, r1, r2, out], rate: 10 kpkt/s}
    b: {path: [in, fw, r3, out]}
traffic: {rate: 1 kpkt/s}
vary: {dut.route_by: [address, port]}
"""
LINES = "name: lines\ndut: {cpus: [1]}\ntraffic: {}\nvary: {dut.line: [1, 2, 64]}\n"


def scales() -> Iterator[tuple[Path, str | None]]:
    for path in sorted(EXAMPLES.rglob("*.yaml")):
        yield path, None
        for name in yaml.safe_load(path.read_text()).get("scales", {}):
            yield path, name


PAPERS = [path for path, scale in scales() if scale == "paper"]


@pytest.mark.parametrize(
    ("path", "scale"), list(scales()), ids=lambda value: getattr(value, "stem", str(value))
)
def test_every_example_is_planned_and_nothing_is_made(
    path: Path, scale: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    chosen = () if scale is None else ("--set", f"scale={scale}")
    made = in_process("run", path, "--check", "--json", "--out", "results", *chosen)
    content = json.loads(made.stdout)
    fits(content)
    if content["can_run"]:
        assert (made.returncode, made.stderr) == (0, "")
    else:
        one_line_error(made, 3)
    assert content["runs"]
    if scale == "paper":
        found = [one for run in (content, *content["runs"]) for one in run["problems"]]
        problems = [one["message"] for one in found]
        assert [one for one in problems if not LACKING.search(one)] == []
    assert bool(content["differs"]) == (scale is not None)
    if scale != "paper":  # has more runs and says them in no other way
        shown = in_process("run", path, "--check", *chosen)
        assert shown.returncode == made.returncode
        assert all(run["slug"] in shown.stdout for run in content["runs"])
        assert all(f"- {sentence}\n" in shown.stdout for sentence in content["differs"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", PAPERS, ids=lambda path: path.stem)
def test_a_papers_own_scale_has_its_cards_named_and_says_how_the_lab_differs(path: Path) -> None:
    """As the comments in the file say, with any names."""
    keys = re.findall(r"--set ([\w.]+)='\[…\]'", path.read_text())
    if not keys:  # as many as somebody has: the cases name them
        assert "Write the names of your cards into the cases" in path.read_text()
    cards = [f"{key}=[eth{2 * n}, eth{2 * n + 1}]" for n, key in enumerate(keys)]
    assert read_experiment(path, ["scale=paper", *cards]).combinations
    here = read_experiment(path, ["scale=paper"]).differs
    assert here[0].startswith("One machine sends the load")
    # Each card has two cables, with splitters and without.
    names = [(card, 2 * n) for n, card in enumerate(("x552", "x520", "x710", "e810"))]
    pairs = [Cables((f"{c}p0", f"{c}p1"), (f"tap{n}", f"tap{n + 1}")) for c, n in names]
    for cables in (pairs, [replace(pair, generator=("gen0", "gen1")) for pair in pairs]):
        there = read_experiment(path, ["scale=paper"], on_testbed=True)
        assert there.differs == here[1:]
        there.wire(cables)
    assert sorted(PAPERS) == sorted((EXAMPLES / "papers").glob("*.yaml"))


def checked(path: Path, text: str) -> tuple[list[list[str]], str]:
    """The words of each line that is shown, and the last line of what is wrong."""
    path.write_text(text)
    made = in_process("run", path, "--check")
    return [line.split() for line in made.stdout.splitlines()], made.stderr.strip()


def test_reasons_stand_below_the_runs(tmp_path: Path) -> None:
    lines, error = checked(tmp_path / "e.yaml", REASONS)
    assert "\n" not in error
    if "nothing would be begun" not in error:  # a container without privileges
        assert "4 of 8 runs are not possible, 003-bare-metal-2kpkt-s-0.1-r1 first: " in error
    assert " ".join(lines[0]).startswith("this experiment differs from the one that it follows:")
    assert lines[1:7] == [
        ["-", "it", "is", "small"],
        ["run", "possible", "see"],
        ["001-wire-1kpkt-s-0.1-r1", "yes"],
        ["002-wire-1kpkt-s-0.2-r1", "yes"],
        ["003-bare-metal-2kpkt-s-0.1-r1", "no", "1"],
        ["004-bare-metal-2kpkt-s-0.2-r1", "no", "2"],
    ]
    reasons = [line[:2] for line in lines if line[:1] in (["1"], ["2"])]
    assert reasons == [["1", "dut.kernel:"], ["2", "dut.kernel:"]]
    said = " ".join(lines[-1])
    assert re.fullmatch(r"8 runs: 1.5 min of traffic, 3.8 MB of stamps, [0-9.]+ MB free", said)
    lines, _ = checked(tmp_path / "e.yaml", f"keep: [evaluation, worst]\n{REASONS}")
    assert "3.8 MB of stamps, 0.6 MB of them at once, " in " ".join(lines[-1])


def test_networks_and_lines_are_drawn_once(tmp_path: Path) -> None:
    said, _ = checked(tmp_path / "e.yaml", NETWORK)
    assert said.count(["network", "of", "001-address-a", "and", "1", "more:"]) == 1
    assert ["fw", "bare-metal", "tc-mirred", "1", "in,", "r1,", "r3"] in said
    assert ["r2", "bare-metal", "kernel-route", "1", "r1,", "out"] in said
    assert ["a", "10", "kpkt/s", "in", "-", "fw", "-", "r1", "-", "r2", "-", "out"] in said
    assert ["b", "1", "kpkt/s", "in", "-", "fw", "-", "r3", "-", "out"] in said
    said, _ = checked(tmp_path / "e.yaml", LINES)
    assert ["002-2:", "in", "-", "dut1", "-", "dut2", "-", "out"] in said
    assert ["003-64:", "in", "-", "dut1", "-", "dut2", "-", "…", "-", "dut64", "-", "out"] in said
    assert not any(words[:1] == ["001-1:"] for words in said)


def test_whoever_is_not_root_is_told_what_is_not_known(tmp_path: Path) -> None:
    path = tmp_path / "e.yaml"
    path.write_text("name: e\ntraffic: {cpu: 0}\ndut: {platform: wire}\n")
    kept = "-all,+dac_read_search"  # the program may lie where only root finds it
    as_nobody = ["setpriv", "--euid", "65534", "--inh-caps", kept, "--ambient-caps", kept]
    command = [*(as_nobody if os.geteuid() == 0 else []), str(TAILTAP), "run", str(path)]
    made, as_json, refused = (
        subprocess.run([*command, *more], check=False, capture_output=True, text=True)
        for more in (("--check",), ("--check", "--json"), ())
    )
    assert made.returncode == 0, made.stderr
    assert made.stdout.splitlines()[1].split() == ["001-e", "as", "root"]
    assert "a run needs root, and only root can ask whether" in " ".join(made.stdout.split())
    assert json.loads(as_json.stdout)["as_root"] is False
    assert one_line_error(refused, 3).endswith("eBPF need root: run it with sudo")
