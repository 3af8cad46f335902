"""`tailtap run --check` on every experiment that ships, at each of its scales."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from forms import fits
from program import TAILTAP, in_process, one_line_error, tailtap

from tailtap.experiment.reading import read_experiment

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted(EXAMPLES.rglob("*.yaml"))
LACKING = re.compile(
    r"there is no (CPU|interface) |has no KVM|vfio-pci|^dut\.(kernel|boot|cgroup|irq): "
    r"|^dut\.tuning: dut\.cpus .* leave no other CPU|make room|is missing on|make forwarders"
    r"|this machine cannot|this kernel has no|a run needs root"
)
"""What a machine may lack for what a paper did. Nothing else may prevent it."""


def scales() -> Iterator[tuple[Path, str | None]]:
    for path in FILES:
        yield path, None
        for name in yaml.safe_load(path.read_text()).get("scales", {}):
            yield path, name


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
    assert list(tmp_path.iterdir()) == []
    assert bool(content["differs"]) == (scale is not None)
    if scale not in (None, "paper"):
        return
    shown = in_process("run", path, "--check", *chosen)
    assert shown.returncode == made.returncode
    assert all(run["slug"] in shown.stdout for run in content["runs"])
    assert list(tmp_path.iterdir()) == []
    for sentence in content["differs"]:
        assert f"- {sentence}\n" in shown.stdout


def test_the_papers_own_scales_are_checked() -> None:
    known = [path.stem for path, scale in scales() if scale == "paper"]
    assert known == sorted(path.stem for path in (EXAMPLES / "papers").glob("*.yaml"))


@pytest.mark.parametrize(
    "path", [path for path, scale in scales() if scale == "paper"], ids=lambda path: path.stem
)
def test_the_cards_that_a_paper_needs_can_be_named(path: Path) -> None:
    """As the comments in the file say, with any names."""
    keys = re.findall(r"--set ([\w.]+)='\[…\]'", path.read_text())
    if not keys:  # as many as somebody has: the cases name them
        assert "Write the names of your cards into the cases" in path.read_text()
    cards = [f"{key}=[eth{2 * n}, eth{2 * n + 1}]" for n, key in enumerate(keys)]
    assert read_experiment(path, ["scale=paper", *cards]).combinations


def test_what_differs_in_the_lab_alone_is_not_said_of_a_testbed(tmp_path: Path) -> None:
    for path, scale in scales():
        if scale == "paper":
            chosen = [f"scale={scale}"]
            here = read_experiment(path, chosen).differs
            assert here[0].startswith("One machine sends the load")
            assert read_experiment(path, chosen, on_testbed=True).differs == here[1:]
    path = tmp_path / "e.yaml"
    path.write_text(
        "name: e\ntraffic: {cpu: 0}\ndiffers: [it is small]\ndiffers_in_lab: [it is near]\n"
    )
    assert read_experiment(path).differs == ("it is near", "it is small")
    assert read_experiment(path, on_testbed=True).differs == ("it is small",)


def test_reasons_stand_below_the_runs(tmp_path: Path) -> None:
    path = tmp_path / "e.yaml"
    path.write_text(
        "name: e\ntraffic: {cpu: 0}\ndut: {cpus: [1]}\ndiffers: [it is small]\n"
        "cases:\n  - {dut.platform: wire, traffic.rate: 1 kpkt/s}\n"
        "  - {dut.platform: bare-metal, traffic.rate: 2 kpkt/s}\n"
        "vary: {dut.kernel: ['0.1', '0.2']}\nrepeat: 2\n"
    )
    made = tailtap("run", path, "--check")
    message = one_line_error(made, 3)
    if "nothing would be begun" not in message:  # a container without privileges
        assert "4 of 8 runs are not possible, 003-bare-metal-2kpkt-s-0.1-r1 first: " in message
    lines = [line.split() for line in made.stdout.splitlines()]
    assert made.stdout.startswith("this experiment differs from the one that it follows:\n- it is")
    assert lines[2] == ["run", "possible", "see"]
    assert lines[3:7] == [
        ["001-wire-1kpkt-s-0.1-r1", "yes"],
        ["002-wire-1kpkt-s-0.2-r1", "yes"],
        ["003-bare-metal-2kpkt-s-0.1-r1", "no", "1"],
        ["004-bare-metal-2kpkt-s-0.2-r1", "no", "2"],
    ]
    assert [line[:2] for line in lines if line[:1] in (["1"], ["2"])] == [
        ["1", "dut.kernel:"],
        ["2", "dut.kernel:"],
    ]
    assert made.stdout.endswith("8 runs: 1.5 min of traffic, 3.8 MB of stamps\n")


def test_whoever_is_not_root_is_told_what_is_not_known(tmp_path: Path) -> None:
    path = tmp_path / "e.yaml"
    path.write_text("name: e\ntraffic: {cpu: 0}\ndut: {platform: wire}\n")
    kept = "-all,+dac_read_search"  # the program may lie where only root finds it
    as_nobody = ["setpriv", "--euid", "65534", "--inh-caps", kept, "--ambient-caps", kept]
    command = [*(as_nobody if os.geteuid() == 0 else []), str(TAILTAP), "run", str(path), "--check"]
    made = subprocess.run(
        [*command, "--out", "out"], cwd=tmp_path, check=False, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    assert made.stdout.splitlines()[1].split() == ["001-e", "as", "root"]
    assert "a run needs root, and only root can ask whether" in " ".join(made.stdout.split())
    told = subprocess.run([*command, "--json"], check=False, capture_output=True, text=True)
    assert json.loads(told.stdout)["as_root"] is False


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--set", "traffic.rate=1"], "--set 'traffic.rate=1': traffic.rate: 1 has no unit"),
        (["--set", "scale=papers"], "there is no scale 'papers'"),
        (["--resume", "--out", "out"], "--check asks about the whole experiment: leave --resume"),
    ],
)
def test_bad_input_is_no_matter_of_the_machine(options: list[str], said: str) -> None:
    path = EXAMPLES / "papers/l2-or-l3.yaml"
    assert said in one_line_error(in_process("run", path, "--check", *options), 2)
