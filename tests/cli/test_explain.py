"""Why packets were late in few words: `tailtap explain --brief`, and the end of `tailtap run`."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from program import tailtap
from traced import arrivals, hog, random_blocks, simulate, write_run

from tailtap.analysis.causes.many import BRIEF_BYTES
from tailtap.cli.analyses import BRIEF_RUNS, explain_briefly


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(1)
    blocks = random_blocks(hog, 5, (300_000, 900_000), 1.0, random)
    simulated = simulate(arrivals(20_000, 1.0, random), blocks, random)
    return write_run(tmp_path_factory.mktemp("traced") / "runs/001-traced", simulated)


@pytest.fixture
def run(traced: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(traced, tmp_path / "out/runs/001-traced"))


def ended(run: Path, *more: Path) -> None:
    explain_briefly(run.parents[1], [run, *more])


def test_a_run_ends_with_what_explain_says_briefly(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended(run)
    said = capsys.readouterr().out
    which, worst = said.splitlines()
    stored = json.loads((run / "causes.json").read_text())
    [hogged] = [row for row in stored["causes"] if row["cause"] == "task"]
    assert which.startswith(f"001-traced: {stored['late']['packets']} packets later than p99.9, ")
    assert f"{hogged['packets']} by task (hog)" in which
    assert worst.startswith("  the worst: ") and "task (hog) for " in worst
    again = tailtap("explain", run, "--brief", "--quiet")
    assert (again.returncode, again.stdout) == (0, said)


def test_every_late_packet_is_counted_once(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended(run)
    head, _, told = capsys.readouterr().out.splitlines()[0].rpartition(": ")
    counts = [int(part.split()[0]) for part in told.split(", ")]
    assert sum(counts) == int(head.split()[1])


@pytest.mark.parametrize("what", ["large", "many"])
def test_of_large_and_of_many_traces_only_the_command_is_told(
    run: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if what == "large":
        os.truncate(run / "trace.events", BRIEF_BYTES)
        ended(run)
    else:
        ended(run, *[run] * BRIEF_RUNS)
    assert capsys.readouterr().out == (f"why packets were late: tailtap explain {run.parents[1]}\n")
    assert not (run / "causes.json").exists()


def test_of_runs_without_a_trace_nothing_is_told(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "trace.events").unlink()
    ended(run)
    assert capsys.readouterr().out == ""


def test_a_trace_of_another_boot_is_told_of_and_the_rest_goes_on(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Path(shutil.copytree(run, run.with_name("002-traced")))
    trace = json.loads((run / "trace.json").read_text())
    (run / "trace.json").write_text(json.dumps({**trace, "boot_id": "other"}))
    ended(run, other)
    first, second, _ = capsys.readouterr().out.splitlines()
    assert first.startswith("001-traced: not explained: ")
    assert "packets later than p99.9" in second
