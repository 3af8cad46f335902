"""What is read of a run is read once, whatever is asked of it."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from traced import arrivals, hog, random_blocks, simulate, write_run

from tailtap.library import explain
from tailtap.show.report import write_report

opened: list[tuple[str, int]] | None = None


def _listen(event: str, args: tuple[object, ...]) -> None:
    if event == "open" and opened is not None:
        path, _, flags = args
        opened.append((str(path), int(str(flags))))


@cache
def _hooked() -> None:
    sys.addaudithook(_listen)


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """How often each file is opened for reading in the block, by its name."""
    global opened  # noqa: PLW0603 (an audit hook stays for the whole process)
    _hooked()
    opened = []
    found: Counter[str] = Counter()
    yield found
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_DIRECTORY
    found.update(Path(path).name for path, flags in opened if not flags & writing)
    opened = None


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(5)
    blocks = random_blocks(hog, 20, (200_000, 600_000), 2, random)
    folder = tmp_path_factory.mktemp("once") / "out/runs/001-traced"
    return write_run(folder, simulate(arrivals(20_000, 2, random), blocks, random))


TRACE = ("trace.events", "trace.json")
"""What is read again to find pauses: a trace may be larger than the memory."""


def more_than_once(run: Path, found: Counter[str]) -> dict[str, int]:
    """How often files of a run were opened beyond once each."""
    there = Counter(path.name for path in run.rglob("*") if path.is_file())
    return {
        name: count - there[name]
        for name, count in found.items()
        if 0 < there[name] < count and name not in TRACE
    }


def test_explain_and_report_open_each_file_of_a_run_once(run: Path) -> None:
    with counted() as found:
        explain(run, late="p99")
    assert found["run.json"] == found["evaluation.json"] == found["exceedances.parquet"] == 1
    assert more_than_once(run, found) == {}
    with counted() as found:
        write_report(run.parents[1], figures=False)
    assert found["run.json"] == found["causes.json"] == 1
    assert more_than_once(run, found) == {}
