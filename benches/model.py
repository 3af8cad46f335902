"""How long the tail model of a long run takes, from its stored evaluation.

The papers' longest runs have 160 million packets. Of these an evaluation keeps the largest million
and some ten thousand blocks, which are made up here; all thresholds, intervals and checks, and the
same with a quarter of the time that packets are stalled in queues.
Usage: python -m benches.model [MILLION_PACKETS]
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import made_records
import numpy as np
from numpy.typing import NDArray

from tailtap.analysis.evaluation import Evaluation
from tailtap.analysis.tail import analyse, tail_of
from tailtap.analysis.tail.analysis import record
from tailtap.records.evaluation import Options, Sides
from tailtap.records.record import printed

KEPT = 1 << 20
WIDTH = 1 << 24
RATE = 1_000_000


def stalls(packets: int, random: np.random.Generator) -> NDArray[np.int64]:
    """The places of the packets kept: some alone, others behind a stall, one after another."""
    alone = random.choice(packets, 3 * KEPT // 4, replace=False)
    starts = random.choice(packets - 100, KEPT // 4 // 32, replace=False)
    queued = (starts[:, None] + np.arange(40)).ravel()
    found = np.unique(np.concatenate((alone, queued)))
    return np.sort(random.permutation(found)[:KEPT])


def write(folder: Path, packets: int) -> None:
    """What the model reads of an evaluation."""
    random = np.random.default_rng(1)
    position = stalls(packets, random)
    latency = (9_000 + 4_000 * random.pareto(6, position.size)).astype(np.int64)
    blocks = packets * 1000 // WIDTH
    counts = np.full(blocks, packets // blocks)
    counts[-1] += packets - counts.sum()
    means = random.normal(4_000, 10, blocks)
    maxima = np.full(blocks, 9_000)
    inside = np.minimum(position // (packets // blocks), blocks - 1)
    np.maximum.at(maxima, inside, latency)
    start = np.arange(blocks) * WIDTH
    sums = (counts * means).astype(np.int64)
    values, numbers = np.unique(latency, return_counts=True)
    usual = packets - position.size
    nothing = {side: (np.empty(0, np.int64),) * 2 for side in ("ingress", "egress")}
    none = np.empty(0, np.int64)
    side = made_records.side(packets, 0, packets * 1000)
    Evaluation(
        key="moonsniff",
        key_reason=None,
        counts=made_records.counts(ingress=packets, egress=packets, matched=packets),
        mean=4_000.0,
        columns={
            "distribution": (np.insert(values, 0, 4_000), np.insert(numbers, 0, usual)),
            "worst": (none, none, none, []),
            "exceedances": (8_999, position, position * 1000, latency),
            "blocks": (WIDTH, start, counts, sums, maxima),
            "gaps": nothing,
            "rates": nothing,
        }.__getitem__,
        inputs=Sides(ingress=side, egress=side),
        options=Options(trim_ns=0, window_ns=5 * 10**9, bucket_ns=100, worst=5_000),
    ).write(folder)


def main() -> None:
    """Prints the times."""
    packets = int(float(sys.argv[1]) * 1e6) if len(sys.argv) > 1 else 160_000_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, packets)
        stored = sum(path.stat().st_size for path in folder.iterdir())
        times = []
        for _ in range(3):
            start, cpu = time.perf_counter(), time.process_time()
            tail = tail_of(Evaluation.load(folder), folder, "run")
            model = analyse(tail)
            printed(record(model))
            times.append((time.perf_counter() - start, time.process_time() - cpu))
    wall, cpu = min(times)
    fitted = [found.fit.n for found in model.assessments if found.fit]
    print(
        f"{packets:,} packets, {tail.position.size:,} kept in {stored / 1e6:.1f} MB: "
        f"{wall:.1f} s ({cpu:.1f} s of CPU), {os.cpu_count()} CPUs; bursts fitted: {fitted}"
    )


if __name__ == "__main__":
    main()
