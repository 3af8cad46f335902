"""The join of what was evaluated in pieces, or on a cluster: byte for byte that of one piece."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from dask_cluster import dask_cluster
from traced import START, Block, arrivals, hog, kworker, random_blocks, simulate, tick, write_run

from tailtap.analysis.causes import explain_runs
from tailtap.analysis.evaluation import Evaluation
from tailtap.analysis.evaluation.cluster import Cluster
from tailtap.analysis.evaluation.executors import Executor, Threads
from tailtap.analysis.evaluation.many import Captures, evaluate_many

SECONDS = 2.0
CHUNK_BYTES = 100_000
FEWEST_PIECES = 5
NAMES = ("causes.json", "causes-late.parquet", "causes-parts.parquet", "causes-stalls.parquet")
LATE = ("p99.9", "p99", "20 us")


@contextmanager
def threads() -> Iterator[Executor]:
    with Threads(2) as executor:
        yield executor


@contextmanager
def workers() -> Iterator[Executor]:
    with dask_cluster(workers=2) as cluster, Cluster(cluster.address) as executor:
        yield executor


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(11)
    blocks = [
        *random_blocks(hog, 5, (1_900_000, 2_100_000), SECONDS, random),
        *random_blocks(kworker, 20, (100_000, 400_000), SECONDS, random),
        *(Block(START + at * 4_000_000 + 777, 3_000, tick) for at in range(int(SECONDS * 250))),
    ]
    simulated = simulate(arrivals(20_000, SECONDS, random), blocks, random)
    return write_run(tmp_path_factory.mktemp("runs") / "001-traced", simulated)


def written(run: Path) -> dict[str, dict[str, bytes]]:
    """All that the join writes, for several thresholds."""
    found = {}
    for late in LATE:
        (explained,) = explain_runs([run], late=late)
        assert explained.joined.state.size >= 20
        found[late] = {name: (run / name).read_bytes() for name in NAMES}
    return found


@pytest.mark.parametrize("executor", [threads, workers])
def test_pieces_are_joined_as_the_whole(run: Path, executor: type) -> None:
    expected = written(run)
    pieces = 0

    def progress(_: int, known: int) -> None:
        nonlocal pieces
        pieces = max(pieces, known)

    pair = Captures(run / "ingress.stamps", run / "egress.stamps")
    with executor() as running:
        ((_, found),) = evaluate_many([pair], running, chunk_bytes=CHUNK_BYTES, progress=progress)
    assert isinstance(found, Evaluation)
    assert pieces >= FEWEST_PIECES
    for path in (run / "evaluation").iterdir():
        path.unlink()
    found.write(run / "evaluation")
    assert written(run) == expected
