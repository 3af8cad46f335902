"""`tailtap verdict` as a user runs it."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from experiment_folders import write_run
from program import in_process, one_line_error, tailtap
from published import POST, PRE, needs_captures


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two repeats over a wire, whose slowest packet takes some microseconds."""
    folder = tmp_path_factory.mktemp("experiment")
    for number in (1, 2):
        write_run(folder, number, {"dut.platform": "wire"}, repeat=number)
    (folder / "experiment.yaml").write_text("name: wire\nrequire: [p99 < 1 ms, loss == 0]\n")
    return folder


def test_yes_is_status_0(experiment: Path) -> None:
    run = tailtap("verdict", experiment)
    assert run.returncode == 0, run
    assert "verdict: holds (2 holds)" in run.stdout
    assert "verdict: 001-wire-10000-1\n" in run.stderr
    assert "p99 < 1 ms" in run.stdout and "0 of 20,000 packets at 1 ms or above" in run.stdout


def test_no_and_not_shown_are_status_1(experiment: Path) -> None:
    run = tailtap("verdict", experiment, "--require", "max < 1 us", "--quiet")
    assert (run.returncode, run.stderr) == (1, "")
    assert "verdict: violated (1 violated)" in run.stdout
    run = tailtap("verdict", experiment, "--profile", "urllc-5g", "--quiet")
    assert run.returncode == 1 and "verdict: not shown (1 not shown)" in run.stdout
    assert "one run of 1,000,000 packets with none would show it: 100 s at 10 kpkt/s" in run.stdout
    assert "profile urllc-5g: 3GPP TR 38.913" in run.stdout
    run = tailtap("verdict", experiment, "--profile", "urllc-5g", "--allow-not-shown", "--quiet")
    assert run.returncode == 0


def test_confidence(experiment: Path) -> None:
    bounds = []
    for share in ("90 %", "99.9 %"):
        run = tailtap("verdict", experiment, "--confidence", share, "--json", "--quiet")
        bounds.append(json.loads(run.stdout)["verdicts"][0]["runs"][0]["figures"]["upper"])
    assert bounds[1] == pytest.approx(3 * bounds[0], rel=0.01)


def test_errors_are_one_line(experiment: Path, tmp_path: Path) -> None:
    cases: list[tuple[tuple[str | Path, ...], str]] = [
        ((), "give the folders to judge, or --list-profiles"),
        ((experiment, "--require", "p99 < 1"), "'p99 < 1': 1 has no unit"),
        ((experiment, "--profile", "urlc-5g"), "did you mean 'urllc-5g'?"),
        ((experiment, "--confidence", "95"), "--confidence"),
        ((experiment, "--confidence", "100 %"), "--confidence"),
        ((experiment, "--runs", "vm"), "no run fits"),
        ((tmp_path, "--require", "loss == 0"), "no runs in it"),
        ((tmp_path / "missing", "--require", "loss == 0"), "no such folder"),
        ((experiment / "runs/001-wire-10000-1/evaluation",), "nothing is required"),
    ]
    for arguments, message in cases:
        assert message in one_line_error(in_process("verdict", "--quiet", *arguments), 2)
    file = tmp_path / "missing" / "verdict.xml"
    error = one_line_error(tailtap("verdict", "--quiet", experiment, "--junit", file), 3)
    assert "cannot write" in error and "--junit" in error


@needs_captures
def test_the_documented_example_is_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs/reference/verdict.md").read_text()
    block = re.search(r"```console\n\$ tailtap (.*?)\n(.*?)```", page, re.S)
    assert block is not None
    monkeypatch.chdir(tmp_path)
    assert tailtap("evaluate", PRE, POST, "--out", "evaluation", "--quiet").returncode == 0
    run = tailtap(*shlex.split(block[1]))
    assert run.returncode == 1
    assert [line.rstrip() for line in run.stdout.splitlines()] == block[2].splitlines()


CLAIMS = """\
name: wire
claims:
  - {says: It keeps its time., for: {dut.platform: wire}, require: [p99 < 1 ms]}
  - {says: Half are quicker than light., require: [median < 1 ns]}
"""


def test_claims(experiment: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(experiment, tmp_path / "copy"))
    (folder / "experiment.yaml").write_text(CLAIMS)
    run = tailtap("verdict", folder, "--quiet")
    assert (run.returncode, run.stderr) == (1, "")
    said = " ".join(run.stdout.split())
    assert "It keeps its time. wire: p99 < 1 ms held" in said
    assert "Half are quicker than light. median < 1 ns contradicted" in said
    found = json.loads(tailtap("verdict", folder, "--json", "--quiet").stdout)
    assert [row["answer"] for row in found["claims"]] == ["held", "contradicted"]
    assert (found["answer"], found["verdicts"]) == ("violated", [])
    # What is required is asked beside them; what else is asked for stands alone.
    (folder / "experiment.yaml").write_text(CLAIMS + "require: [p99 < 1 ms]\n")
    run = tailtap("verdict", folder, "--quiet")
    assert run.returncode == 1 and "p99 < 1 ms" in run.stdout
    assert "claims: 1 contradicted, 1 held" in run.stdout
    run = tailtap("verdict", folder, "--require", "loss < 1 %", "--quiet")
    assert run.returncode == 0 and "quicker" not in run.stdout
    told = tailtap("report", folder, "--no-figures", "--json", "--quiet").stdout
    page = Path(json.loads(told)["page"]).read_text("utf-8")
    assert "Half are quicker than light." in page
