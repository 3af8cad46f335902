"""What is read of a run is read once, whatever is asked of it."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from traced import arrivals, hog, random_blocks, simulate, write_run

from tailtap.library import explain

opened: list[tuple[str, int]] | None = None


def _listen(event: str, args: tuple[object, ...]) -> None:
    if event == "open" and opened is not None:
        path, _, flags = args
        opened.append((str(path), int(str(flags))))


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """How often each file is opened for reading in the block, by its name."""
    global opened  # noqa: PLW0603 (an audit hook stays for the whole process)
    if opened is None:
        sys.addaudithook(_listen)
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


def test_explain_reads_each_file_of_an_evaluation_once(run: Path) -> None:
    with counted() as found:
        explain(run, late="p99")
    assert found["run.json"] == 1
    assert found["evaluation.json"] == 1
    tables = [path.name for path in (run / "evaluation").glob("*.parquet")]
    assert tables
    assert {name: found[name] for name in tables if found[name] > 1} == {}
