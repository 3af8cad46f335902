"""`tailtap evaluate` on a run of a line whose packets were stamped between the nodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from line_runs import STALL_NS, STALLED, write_line_run
from program import tailtap


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_line_run(tmp_path)


def evaluated(run: Path, *options: str) -> dict[str, Any]:
    done = tailtap("evaluate", str(run), "--json", *options)
    assert done.returncode == 0, done.stderr
    [row] = json.loads(done.stdout)["runs"]
    found: dict[str, Any] = row["evaluation"]
    return found


def test_hops_are_told_and_stored(run: Path) -> None:
    found = evaluated(run)
    hops = found["hops"]
    assert [row["node"] for row in hops] == ["dut1", "dut2", "dut3"]
    assert [row["counts"]["lost"] for row in hops] == [0, 1, 0]
    assert sum(row["slowest_of_worst"] for row in hops) == 5_000
    worst = found["worst"][0]
    assert (worst["key"], worst["hops"][2]) == (str(STALLED), STALL_NS)
    assert json.loads((run / "evaluation/evaluation.json").read_text()) == found
    files = {path.name for path in (run / "evaluation").glob("hops*")}
    assert files == {"hops.parquet", "hops-distribution.parquet", "hops-worst.parquet"}


def test_pieces_give_the_same_hops(run: Path) -> None:
    whole = evaluated(run)
    files = {path.name: path.read_bytes() for path in (run / "evaluation").iterdir()}
    assert evaluated(run, "--chunk", "50 kB", "--jobs", "2") == whole
    assert {path.name: path.read_bytes() for path in (run / "evaluation").iterdir()} == files


def test_a_capture_that_is_gone_keeps_what_was(run: Path) -> None:
    before = evaluated(run)
    (run / "dut3.stamps").unlink()
    done = tailtap("evaluate", str(run), "--json")
    assert done.returncode == 2
    assert "dut3.stamps" in done.stderr
    assert json.loads((run / "evaluation/evaluation.json").read_text()) == before
