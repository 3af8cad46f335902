"""What is told of runs that are done while others are measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from traced import arrivals, hog, random_blocks, simulate, write_run

from tailtap.measure.live import explained


def test_a_run_that_is_done_has_causes_and_nothing_is_written(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    blocks = random_blocks(hog, 5, (1_900_000, 2_100_000), 1.0, random)
    simulated = simulate(arrivals(20_000, 1.0, random), blocks, random)
    folder = write_run(tmp_path / "runs" / "001-run", simulated)
    before = sorted(folder.rglob("*"))
    rows = explained(folder)
    assert [(row.cause, row.packets > 0) for row in rows if row.claim == "cause"] == [
        ("task", True)
    ]
    assert sorted(folder.rglob("*")) == before


def test_a_run_that_nobody_can_explain_has_none(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    folder = write_run(tmp_path / "001-run", simulate(arrivals(1_000, 1.0, random), [], random))
    (folder / "trace.json").unlink()
    assert explained(folder) == []
