"""Peaks over a threshold: which packets of the fitted part are exceedances.

Coarse stamps: the tick of the clocks that latencies were taken with, and ties undone.

A clock that ticks every 12.5 ns makes many latencies equal, and equal values look like a
discrete distribution to every test made for continuous ones. As the tick is known, the values are
spread evenly within it: the j-th of the latencies that are c ticks moves to
tick (c + frac(j phi + c psi) - 1/2). With phi the golden section and psi that of the plastic
number these places fill a tick evenly for any number of ties, say nothing of the order in time,
and are the same every time. A value stays within half a tick of what was measured. That is right
to the second order in tick / sigma; where a tick is not small against sigma the model is refused.

Stalled packets come in queues: exceedances grouped into clusters.

The intervals between exceedances, in packets, tell how many of them belong together (Ferro and
Segers, Journal of the Royal Statistical Society B 65, 2003). Their estimator gives the extremal
index, the number of clusters for each exceedance, without a parameter; and the index gives the one
parameter of declustering by runs: with C clusters, the C - 1 longest intervals are those between
clusters, and the run length is the longest one within them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailtap.analysis.evaluation.values import Column
from tailtap.analysis.runs.tail import StoredTail
from tailtap.analysis.tail.gpd import Floats
from tailtap.base.errors import InputError
from tailtap.base.units import TIME_UNITS, format_time, parse_time

#: Clusters are counted in this many parts of equal length.
PARTS = 10
#: Chance makes a Poisson process so uneven with less than this probability.
UNEVEN = 0.001


@dataclass(frozen=True)
class Bursts:
    """Clusters of exceedances."""

    #: Clusters for each exceedance by the intervals estimator, above 0 and at most 1.
    extremal_index: float
    #: Exceedances at most this many packets apart belong to one cluster.
    run_length: int
    #: The place of the first exceedance of each cluster among the exceedances, ascending from 0.
    first: Column

    @property
    def count(self) -> int:
        """How many clusters there are."""
        return self.first.size

    def maxima(self, values: Floats) -> Floats:
        """The largest of the exceedances' `values` in each cluster."""
        return np.maximum.reduceat(values, self.first)


def extremal_index(position: Column) -> float:
    """The extremal index of exceedances at these places in the sequence of packets, ascending."""
    if position.size < 2:
        return 1.0
    gaps = np.diff(position).astype(np.float64)
    n = gaps.size
    if gaps.max() <= 2:
        index = 2 * gaps.sum() ** 2 / (n * (gaps**2).sum())
    else:
        index = 2 * (gaps - 1).sum() ** 2 / (n * ((gaps - 1) * (gaps - 2)).sum())
    return float(min(1.0, index))


def decluster(position: Column) -> Bursts:
    """Clusters of exceedances at these places in the sequence of packets, ascending.

    Packets that follow one another belong to one cluster whatever the index says.
    """
    index = extremal_index(position)
    if position.size < 2:
        return Bursts(index, 1, np.zeros(position.size, dtype=np.int64))
    longest = np.sort(np.diff(position))[::-1]
    between = min(int(index * position.size), longest.size)
    # The longest interval that is not among those between clusters; where it ties with them, they
    # count as within a cluster too.
    run_length = int(longest[between]) if between < longest.size else 1
    return with_run_length(position, run_length, index)


def with_run_length(position: Column, run_length: int, index: float | None = None) -> Bursts:
    """Clusters of exceedances of which none are more than `run_length` packets apart."""
    apart = np.flatnonzero(np.diff(position) > run_length) + 1
    first = np.concatenate((np.zeros(min(position.size, 1), dtype=np.int64), apart))
    return Bursts(extremal_index(position) if index is None else index, run_length, first)


def unevenness(starts: Column, packets: int) -> Column | None:
    """Clusters in each tenth of so many packets, if too uneven for a Poisson process.

    None where they are not (chi-square over the parts), or are fewer than five for each part.
    """
    from scipy import special

    if starts.size < 5 * PARTS:
        return None
    counts = np.histogram(starts, PARTS, (0, packets))[0]
    expected = starts.size / PARTS
    p = float(special.chdtrc(PARTS - 1, ((counts - expected) ** 2 / expected).sum()))
    return counts if p < UNEVEN else None


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


#: The papers' thresholds, as percentiles of the fitted part.
PERCENTILES = (99.5, 99.9, 99.95, 99.99, 99.999)
#: More packets than this share over a threshold are no tail.
MOST = 0.1


@dataclass(frozen=True)
class Threshold:
    """A threshold as asked for: a `percentile` (0 to 100) of the fitted part, or a time in ns."""

    percentile: float | None = None
    time_ns: int | None = None

    @property
    def text(self) -> str:
        """As people write it."""
        if self.percentile is not None:
            return f"{self.percentile:g} %"
        return format_time(self.time_ns or 0)


@dataclass(frozen=True)
class Part:
    """A part of a run, of `packets` consecutive packets from place `start` on.

    `position` (within the run) and `latency` (ns) are of its packets above the stored floor.
    """

    start: int
    packets: int
    position: Column
    latency: Floats
    #: All its packets with a latency above this (ns) are there.
    floor: float = 0.0

    def over(self, latency: float) -> NDArray[np.bool_] | None:
        """Which of its stored packets lie above `latency` (ns); None where some are not stored.

        Unless those that are stored are too many for a tail already.
        """
        over = self.latency > latency
        if latency < self.floor and self.latency.size < self.packets:
            return over if over.sum() > MOST * self.packets else None
        return over


def parse_threshold(text: str) -> Threshold:
    """A threshold of the command line: ``99.95`` or ``99.95 %``, or a latency such as ``30 us``.

    Raises `InputError` when it is neither, or a percentage not between 50 and 100.
    """
    stripped = text.strip()
    if any(stripped.endswith(unit) for unit in TIME_UNITS):
        return Threshold(time_ns=parse_time(stripped))
    try:
        percentile = float(stripped.removesuffix("%").removeprefix("p"))
    except ValueError:
        percentile = -1.0
    if not 50 <= percentile < 100:
        raise InputError(
            f"'{stripped}' is not a threshold: give --threshold a percentile of at "
            "least 50 and below 100, such as 99.95, or a latency such as '30 us'"
        )
    return Threshold(percentile)


def split(tail: StoredTail, share: float, latency: Floats) -> tuple[Part, Part]:
    """The first `share` (above 0, at most 1) of a run's packets, and the rest.

    `latency` are the run's stored latencies, as measured or with ties undone.
    """
    packets = int(tail.packets * share)
    cut = int(np.searchsorted(tail.position, packets))
    return (
        Part(0, packets, tail.position[:cut], latency[:cut], tail.floor_ns),
        Part(packets, tail.packets - packets, tail.position[cut:], latency[cut:], tail.floor_ns),
    )


def latency(fitted: Part, threshold: Threshold) -> float | None:
    """The latency (ns) that a threshold is in the fitted part; None below the stored floor."""
    if threshold.percentile is None:
        return float(threshold.time_ns or 0)
    return percentile(fitted, threshold.percentile)


def percentile(part: Part, p: float) -> float | None:
    """The percentile `p` (0 to 100) of a part's latencies, in ns, interpolated linearly.

    As numpy's `percentile` gives it, from the stored largest latencies alone; None where it lies
    below them.
    """
    place = (part.packets - 1) * (p / 100)
    below = int(np.floor(place))
    from_top = part.packets - 1 - below
    if part.packets < 1 or from_top >= part.latency.size:
        return None
    ordered = np.sort(part.latency)
    left = float(ordered[-1 - from_top])
    right = float(ordered[-from_top]) if from_top > 0 else left
    share = place - below
    # The nearer end is what is started from, as numpy does it.
    if share < 0.5:
        return left + (right - left) * share
    return right - (right - left) * (1 - share)
