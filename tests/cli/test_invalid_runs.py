"""What commands say of runs that failed, or whose generator did not send what was asked of it."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest
from evaluations import run_row
from experiment_folders import write_run
from program import in_process
from traced import arrivals, hog, random_blocks, simulate
from traced import write_run as write_traced

from tailtap.cli.results import print_runs, problem_of
from tailtap.records.evaluation import EvaluationRecord
from tailtap.records.experiment import RunRow
from tailtap.records.record import Notice, read
from tailtap.results.database import refresh

SLIP = Notice("generator-slip", "1 % of the packets left late")
RATE = Notice("generator-rate", "the generator reached half of it")
STEAL = Notice("steal", "the hypervisor took 3 %")


def row(slug: str, *warnings: Notice, error: str | None = None) -> RunRow:
    """A run of ``tailtap run --json``, as far as it matters here."""
    valid = None if error else not any(one in (SLIP, RATE) for one in warnings)
    status = "failed" if error else "done"
    return run_row(slug, status=status, error=error, warnings=list(warnings), valid=valid)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([row("001", STEAL, SLIP)], "1 of 1 runs is invalid, 001 first: 1 % of the packets left"),
        (
            [row("001"), row("002", RATE), row("003", SLIP)],
            "2 of 3 runs are invalid, 002 first: the generator reached half of it",
        ),
        (
            [row("001", SLIP), row("002", error="no root")],
            "1 of 2 runs failed, 002 first: no root; 1 of 2 runs is invalid, 001 first: 1 %",
        ),
        ([run_row("001-a", valid=False)], "001-a first: another flow of it is"),
    ],
)
def test_failed_and_invalid_runs_are_status_3_with_a_reason(rows: list[RunRow], said: str) -> None:
    problem = problem_of(rows)
    assert problem is not None and said in str(problem) and problem.exit_status == 3


def test_good_runs_are_no_matter() -> None:
    assert problem_of([row("001", STEAL), row("002")]) is None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A valid run and an invalid one."""
    for repeat in (1, 2):
        write_run(tmp_path, repeat, {"dut.platform": "wire"}, repeat=repeat, packets=2_000,
                  achieved=5_000.0 if repeat == 2 else None)  # fmt: skip
    return tmp_path


def test_the_table_of_runs_marks_them(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = next(folder.glob("runs/*/evaluation/evaluation.json"))
    rows = [row("001"), row("002", SLIP)]
    for one in rows:
        one.evaluation = read(path, EvaluationRecord)
    print_runs(rows, folder)
    marked = [line for line in capsys.readouterr().out.splitlines() if "invalid" in line]
    assert len(marked) == 1 and marked[0].startswith("002")


def test_exports_and_databases_say_which_runs_are_invalid(folder: Path, tmp_path: Path) -> None:
    runs = sorted((folder / "runs").iterdir())
    done = in_process("export", folder, "--to", "parquet", "--out", tmp_path / "out", "--quiet")
    assert done.returncode == 0
    assert done.stderr == (
        f"warning: {runs[1].name} is invalid: its generator did not send what was asked of it\n"
    )
    assert pq.read_table(tmp_path / "out/runs.parquet")["valid"].to_pylist() == [True, False]
    refresh(folder)
    with duckdb.connect(str(folder / "results.duckdb"), read_only=True) as database:
        found = database.sql("SELECT valid FROM runs ORDER BY run").fetchall()
    assert found == [(True,), (False,)]


def test_causes_say_that_their_run_is_invalid(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    blocks = random_blocks(hog, 6, (300_000, 900_000), 1.0, random)
    run = write_traced(tmp_path / "run", simulate(arrivals(20_000, 1.0, random), blocks, random))
    said = {}
    for valid in (True, False):
        content = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps({**content, "valid": valid}))
        said[valid] = in_process("explain", run, "--quiet").stdout.splitlines()[0]
        assert json.loads((run / "causes.json").read_text())["valid"] is valid
    assert said[False] == said[True].replace("run: ", "run (invalid): ", 1)
