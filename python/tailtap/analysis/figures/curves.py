"""The curves of the figures, computed from exact distributions.

Pure functions from counts to polylines. The HDR diagram has 1/(1-p) on its x axis: a packet with
`r` packets above it, out of `n`, ends its step at x = n/r.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tailtap.analysis.evaluation import Histogram, Percentile
from tailtap.analysis.evaluation.model import Latencies
from tailtap.analysis.runs.run import Floats, Integers
from tailtap.analysis.runs.text import percent_text

SUPPORT = 10
"""A percentile with fewer samples above it than this is shown as unsupported."""
STEPS_PER_DECADE = 200
"""Steps that a curve keeps in each decade of 1/(1-p): about one for each pixel on a wide screen."""


@dataclass(frozen=True)
class Curve:
    """A step curve as the corners of a polyline; x = 1/(1-p), y in ns."""

    x: Floats
    y: Integers
    split: int
    """Corners before this index are supported; the step from there on is not."""


def step_curve(latencies: Integers, counts: Integers) -> Curve:
    """The nearest-rank percentiles of a distribution as a step curve over x = 1/(1-p).

    `latencies` ascend (ns), each occurring `counts` times. Every y is a latency that occurred; in
    the sparse tail each sample has its own step; elsewhere a step may begin up to 1/200 of a decade
    before its true place, so the curve never understates a latency. The last step, the maximum,
    is drawn up to x = 2n: every percentile beyond (n-1)/n is the maximum.
    """
    total = int(counts.sum())
    above = _ranks_from_top(total)
    ranks = total - above
    values = latencies[np.searchsorted(np.cumsum(counts), ranks)]
    ends = total / np.maximum(above, 0.5)
    starts = np.concatenate(([1.0], ends[:-1]))
    # A new step begins where the value changes, and where the support ends.
    begins = np.ones(values.size, dtype=bool)
    begins[1:] = (values[1:] != values[:-1]) | (above[:-1] == SUPPORT)
    first = np.flatnonzero(begins)
    last = np.concatenate((first[1:] - 1, [values.size - 1]))
    x = np.column_stack((starts[first], ends[last])).ravel()
    return Curve(x, np.repeat(values[first], 2), 2 * int((above[last] >= SUPPORT).sum()))


def percentile_curve(percentiles: Sequence[Percentile], packets: int | None) -> Curve:
    """Ascending percentiles alone as a step curve: each step ends at its percentile.

    A step has the latency of its end, so the curve never understates one, and is as coarse as the
    percentiles. The maximum is drawn up to x = 2n, as in `step_curve`; where `packets`, n, is not
    known, the curve ends at the first percentile with the largest latency, all unsupported.
    """
    last = percentiles[-1].value
    ends = next(
        i
        for i, row in enumerate(percentiles)
        if (row.value == last if packets is None else not row.above) or row is percentiles[-1]
    )
    rows = percentiles[: ends + 1]
    x = np.maximum.accumulate([1 / (1 - row.p) if row.p < 1 else 1.0 for row in rows])
    if packets is not None and not rows[-1].above:
        x[-1] = 2 * packets
    steps = np.column_stack((np.concatenate(([1.0], x[:-1])), x)).ravel()
    values = np.array([row.value for row in rows], dtype=np.int64)
    supported = 0 if packets is None else sum(row.supported for row in rows)
    return Curve(steps, np.repeat(values, 2), 2 * supported)


def curve_of(evaluation: Latencies) -> Curve | None:
    """The curve of an evaluation, from what is known of its latencies; None of nothing."""
    latencies, counts = evaluation.distribution
    if latencies.size:
        # Two clocks may show latencies below nothing, which have no logarithm.
        return step_curve(np.maximum(latencies, 1), counts)
    if evaluation.curve:
        return percentile_curve(evaluation.curve, evaluation.packets)
    return None


def _ranks_from_top(total: int) -> Integers:
    """How many packets are above each kept rank, descending from total-1 to 0."""
    decades = np.log10(max(total, 2))
    spread = np.logspace(0, decades, int(decades * STEPS_PER_DECADE) + 2)
    dense = np.arange(min(total, STEPS_PER_DECADE // 2))
    kept = np.union1d(np.minimum(np.rint(spread).astype(np.int64), total - 1), dense)
    return kept[::-1]


def confidence_band(
    percentiles: Sequence[Percentile],
) -> tuple[Floats, Integers, Integers]:
    """The confidence intervals of supported percentiles as a stepped band: x, low, high.

    Between two percentiles the band reaches from the lower one's lower limit to the upper one's
    upper limit, so it never promises more than the intervals do.
    """
    known = [
        (1 / (1 - row.p), row.low, row.high)
        for row in percentiles
        if row.supported and row.low is not None and row.high is not None and 0 < row.p < 1
    ]
    if len(known) < 2:
        return np.empty(0), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    x = np.array([row[0] for row in known])
    low = np.maximum(np.array([row[1] for row in known], dtype=np.int64), 1)
    high = np.maximum(np.array([row[2] for row in known], dtype=np.int64), 1)
    edges = np.column_stack((x[:-1], x[1:])).ravel()
    return edges, np.repeat(low[:-1], 2), np.repeat(high[1:], 2)


def bins_per_decade(histograms: Iterable[Histogram]) -> int:
    """How fine to gather histograms that share an axis, so that they fill it with ~160 bins."""
    ranges = [
        (max(int(h.edges[0]), h.width), max(int(h.edges[-1]), h.width) + h.width)
        for h in histograms
        if h.edges.size
    ]
    if not ranges:
        return 1
    decades = np.log10(max(high for _, high in ranges) / min(low for low, _ in ranges))
    return int(np.clip(160 / max(decades, 1e-3), 20, 4_000))


def log_histogram(histogram: Histogram, per_decade: int) -> tuple[Floats, Integers]:
    """A histogram gathered into bins of 1/`per_decade` of a decade: edges (ns) and counts.

    Bins begin at multiples of the histogram's own width, so that none gets more buckets than
    its size says; the first bin begins at half a width, because zero has no logarithm. There is
    one edge more than there are counts; both are empty when the histogram is.
    """
    if not histogram.edges.size:
        return np.empty(0), np.empty(0, dtype=np.int64)
    width = histogram.width
    # Two clocks may show latencies below nothing.
    found = np.maximum(histogram.edges // width, 0)
    low, high = int(found[0]), int(found[-1]) + 1
    exponents = np.arange(
        np.floor(np.log10(max(low, 1)) * per_decade), np.ceil(np.log10(high) * per_decade) + 1
    )
    edges = np.unique(np.rint(10 ** (exponents / per_decade)).astype(np.int64))
    if low == 0:
        edges = np.union1d([0], edges)
    edges = np.union1d(edges, [max(edges[-1], high)])
    places = np.searchsorted(edges, found, side="right") - 1
    counts = np.bincount(places, weights=histogram.counts, minlength=edges.size - 1)
    return np.maximum(edges * float(width), width / 2), counts.astype(np.int64)


def outline(edges: Floats, counts: Integers, floor: float) -> tuple[Floats, Floats]:
    """The corners of a histogram's outline; empty bins lie at `floor`, as on a log axis."""
    if not counts.size:
        return np.empty(0), np.empty(0)
    heights = np.where(counts > 0, counts, floor)
    x = np.repeat(edges, 2)
    return x, np.concatenate(([floor], np.repeat(heights, 2), [floor]))


def ticks_of_percentiles(highest: float) -> list[float]:
    """The ticks of an HDR diagram's x axis up to `highest` = 1/(1-p): 50 %, 75 %, 90 %, 99 % …"""
    nines = [10.0**k for k in range(1, int(np.floor(np.log10(highest))) + 1)]
    return [2.0, 4.0, *nines]


def ticks_between(low: float, high: float) -> list[float]:
    """Ticks of a part of such an axis: the nines, and where these are few also 95 %, 98 % …"""
    for factors in ((1.0,), (1.0, 2.0, 5.0)):
        powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
        ticks = [factor * 10.0**k for k in powers for factor in factors]
        shown = [tick for tick in ticks if low * 0.999 <= tick <= high]
        if len(shown) >= 3:
            break
    return shown


def tick_label(x: float) -> str:
    """The label of x = 1/(1-p): ``99.9 %``."""
    return percent_text(round(1 - 1 / x, 12))
