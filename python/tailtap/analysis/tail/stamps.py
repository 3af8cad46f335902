"""Coarse stamps: the tick of the clocks that latencies were taken with, and ties undone.

A clock that ticks every 12.5 ns makes many latencies equal, and equal values look like a
discrete distribution to every test made for continuous ones. As the tick is known, the values are
spread evenly within it: the j-th of the latencies that are c ticks moves to
tick (c + frac(j phi + c psi) - 1/2). With phi the golden section and psi that of the plastic
number these places fill a tick evenly for any number of ties, say nothing of the order in time,
and are the same every time. A value stays within half a tick of what was measured. That is right
to the second order in tick / sigma; where a tick is not small against sigma the model is refused.
"""

from __future__ import annotations

import numpy as np

from tailtap.analysis.evaluation.values import Column
from tailtap.analysis.tail.gpd import Floats

#: Ticks of clocks in use, in ns: network cards (3.2, 6.4, 8, 12.5, ...), counters of powers of ten
#: and two, files that keep microseconds or milliseconds only.
TICKS = (
    2.0, 3.2, 4.0, 5.0, 6.4, 8.0, 10.0, 12.5, 16.0, 20.0, 25.0, 32.0, 40.0, 50.0, 51.2, 64.0, 80.0,
    100.0, 125.0, 128.0, 200.0, 250.0, 256.0, 500.0, 512.0, 1_000.0, 2_000.0, 4_000.0, 10_000.0,
    100_000.0, 1_000_000.0, 4_000_000.0, 10_000_000.0,
)  # fmt: skip
_SAMPLE = 4096
#: Fewer distinct values say nothing about a tick.
_DISTINCT = 8
#: This share of the values must lie on the tick.
_SHARE = 0.99
_GOLDEN, _PLASTIC = 0.6180339887498949, 0.7548776662466927


def tick_of(latency: Column) -> float:
    """The tick of the latencies' clocks in ns; 1 where they are not coarser than the file.

    The longest of `TICKS` of which nearly all distinct values are multiples. Stamps are rounded to
    whole nanoseconds one by one, so that a difference of two may be 1 ns off.
    """
    distinct = np.unique(latency)
    if distinct.size < _DISTINCT:
        return 1.0
    distinct = distinct[:: -(-distinct.size // _SAMPLE)].astype(np.float64)
    for tick in sorted(TICKS, reverse=True):
        # A tolerance of 1 ns would let every value pass for a short tick.
        tolerance = 1.01 if tick > 6 else 0.51 if tick % 1 else 0.01
        off = np.abs(distinct - np.rint(distinct / tick) * tick)
        if np.mean(off <= tolerance) >= _SHARE:
            return tick
    return 1.0


def spread(latency: Column, tick: float) -> Floats:
    """Latencies with ties undone within half a `tick` (ns), in the order given."""
    cell = np.rint(latency / tick)
    order = np.argsort(cell, kind="stable")
    cells = cell[order]
    starts = np.flatnonzero(np.concatenate(([True], cells[1:] != cells[:-1])))
    counts = np.diff(np.concatenate((starts, [cells.size])))
    rank = np.arange(cells.size) - np.repeat(starts, counts)
    found = np.empty(latency.size)
    found[order] = (cells + np.modf(rank * _GOLDEN + cells * _PLASTIC)[0] - 0.5) * tick
    return found
