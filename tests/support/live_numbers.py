"""Numbers of a measurement that runs, made."""

from __future__ import annotations

import numpy as np

from tailtap.analysis.evaluation.values import DEFAULT
from tailtap.analysis.live.counting import Histogram
from tailtap.records.evaluation import WorstRecord
from tailtap.records.live import LiveFlow, LiveRecord

SECOND = 1_000_000_000


def numbers(*, lost: int = 0, flows: tuple[str, ...] = ("forward",)) -> LiveRecord:
    """Of a run of 20 s, of which 12 are over."""
    return LiveRecord(
        run="001-tc-mirred",
        number=2,
        runs=6,
        time_ns=500 * SECOND,
        elapsed_s=12.0,
        left_s=8.0,
        window_ns=SECOND,
        flows=[_flow(name, lost) for name in flows],
        notes=["a note with <b>marks</b>"],
    )


def _flow(name: str, lost: int) -> LiveFlow:
    latencies = (np.random.default_rng(1).lognormal(3, 0.5, 120_000) * 1000).astype(np.int64)
    latencies[:40] += 2_000_000
    histogram = Histogram()
    histogram.add(*np.unique(latencies, return_counts=True))
    return LiveFlow(
        name=name,
        ingress=latencies.size + lost,
        egress=latencies.size,
        matched=latencies.size,
        lost=lost,
        left_out=0,
        rate=10_000.4,
        until_ns=498 * SECOND,
        sum_ns=histogram.sum_ns,
        max_ns=histogram.max_ns,
        percentiles=histogram.percentiles(DEFAULT),
        below=histogram.cumulative,
        exponential=histogram.exponential,
        worst=[
            WorstRecord(
                latency=int(value), ingress_ns=490 * SECOND, egress_ns=490 * SECOND, key=f"{place}"
            )
            for place, value in enumerate(np.sort(latencies)[:-6:-1])
        ],
    )
