"""How fast a pair of captures is evaluated, beside reading it and beside plain NumPy.

All ways run in turn, several times, from the page cache, on one core and then on all; medians are
printed.
Usage: python benches/evaluate.py [MILLION_PAIRS]
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/support"))
from captures import RECORD, write_many

from tailtap import evaluation

ROUNDS = 5
SECOND = 1_000_000_000


def make(folder: Path, pairs: int) -> None:
    """Two captures at 1 Mpkt/s: latencies around 3.4 us with a tail, a little reordering."""
    rng = np.random.default_rng(1)
    times = 15 * SECOND + np.arange(pairs) * 1_000 + rng.integers(0, 200, pairs)
    latency = (3_000 + rng.gamma(2, 200, pairs)).astype(np.int64)
    latency[rng.integers(0, pairs, pairs // 5_000)] += rng.integers(0, 20_000, pairs // 5_000)
    order = np.argsort(times + latency, kind="stable")
    write_many(folder / "in.pcap", times, np.arange(pairs))
    write_many(folder / "out.pcap", (times + latency)[order], np.arange(pairs)[order])


def read(folder: Path) -> None:
    """Merely reads both files."""
    for name in ("in.pcap", "out.pcap"):
        with (folder / name).open("rb", buffering=0) as file:
            while file.read(1 << 20):
                pass


def by_numpy(folder: Path) -> None:
    """A script that knows the record layout: direct index by id, one sort, percentiles only."""

    def load(name: str) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
        records = np.memmap(folder / name, RECORD, "r", offset=24)
        times = records["seconds"].astype(np.int64) * SECOND + records["ns"]
        return times, np.ascontiguousarray(records["frame"][:, 42:46]).view("<u4").ravel()

    before, before_ids = load("in.pcap")
    after, after_ids = load("out.pcap")
    by_id = np.zeros(int(before_ids.max()) + 1, np.int64)
    by_id[before_ids] = before
    latency = np.sort(after - by_id[after_ids])
    ranks = [int(np.ceil(p * len(latency))) - 1 for p in evaluation.percentiles.DEFAULT]
    assert latency[ranks].all()


def by_tailtap(key: str) -> Callable[[Path], None]:
    """The whole evaluation: every statistic, without writing it out."""

    def run(folder: Path) -> None:
        found = evaluation.evaluate(folder / "in.pcap", folder / "out.pcap", key=key)
        assert found.percentiles()

    return run


def main() -> None:
    """Prints the table."""
    pairs = int(float(sys.argv[1] if len(sys.argv) > 1 else 5) * 1_000_000)
    ways: dict[str, Callable[[Path], None]] = {
        "read both files": read,
        "NumPy, percentiles only": by_numpy,
        "tailtap, key moonsniff": by_tailtap("moonsniff"),
        "tailtap, key 42:4:le": by_tailtap("42:4:le"),
        "tailtap, key signature": by_tailtap("signature"),
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder, pairs)
        cpus = sorted(os.sched_getaffinity(0))
        for used in ({cpus[0]}, set(cpus)):
            os.sched_setaffinity(0, used)
            measure(folder, pairs, ways, len(used))


def measure(folder: Path, pairs: int, ways: dict[str, Callable[[Path], None]], cores: int) -> None:
    """Prints the table of one number of cores."""
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(ROUNDS):
        for way, run in ways.items():
            start = time.perf_counter()
            run(folder)
            seconds[way].append(time.perf_counter() - start)
    medians = {way: statistics.median(times) for way, times in seconds.items()}
    floor = medians["read both files"]
    print(f"{pairs:,} pairs, {cores} core{'s'[: cores > 1]}, median of {ROUNDS} rounds in turn\n")
    print(f"{'':26}{'seconds':>9}{'x reading':>11}{'million pairs/s':>17}")
    for way, median in medians.items():
        print(f"{way:26}{median:9.3f}{median / floor:11.1f}{pairs / median / 1e6:17.1f}")
    print()


if __name__ == "__main__":
    main()
