"""The plots that show whether a threshold and a fit will do, as numbers; `report` draws them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tailtap.analysis.evaluation.values import Column
from tailtap.analysis.tail.assessment import FEWEST, Assessment
from tailtap.analysis.tail.gpd import Excesses, Floats, exponential
from tailtap.analysis.tail.peaks import MOST, Part, decluster

#: How many thresholds are looked at, and how many points a plot has.
THRESHOLDS, POINTS = 24, 200
#: 97.5 % quantile of the normal distribution.
_Z = 1.959963984540054


@dataclass(frozen=True)
class Stability:
    """Fits over ascending thresholds `u` (ns): above a good one, all these stay level.

    `xi` has its profile likelihood interval; `scale` is sigma - xi u (ns) with its normal
    interval; `index` the extremal index.
    """

    u: Floats
    bursts: Floats
    xi: Floats
    xi_low: Floats
    xi_high: Floats
    scale: Floats
    scale_low: Floats
    scale_high: Floats
    index: Floats


@dataclass(frozen=True)
class MeanExcess:
    """The mean excess over each threshold `u` (ns) with its normal 95 % interval.

    Under a GPD it is a straight line with the slope xi / (1 - xi).
    """

    u: Floats
    mean: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True)
class Points:
    """Observed order statistics beside the model's, with pointwise 95 % intervals.

    Latencies in ns (quantile plot) or probabilities (probability plot), ascending.
    """

    model: Floats
    observed: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True)
class Levels:
    """Return levels (ns) over the return period in packets, and what was observed.

    `low` and `high` are NaN-free: where there is no interval they are empty.
    """

    packets: Floats
    level: Floats
    low: Floats
    high: Floats
    seen_packets: Floats
    seen: Floats


def thresholds(part: Part) -> Floats:
    """Latencies (ns) that from `FEWEST` to a tenth of the packets exceed, ascending."""
    most = min(int(part.packets * MOST), part.latency.size - 1)
    if most < FEWEST:
        return np.zeros(0)
    counts = np.unique(np.geomspace(FEWEST, most, THRESHOLDS).astype(np.int64))[::-1]
    ordered = np.sort(part.latency)
    return np.unique(ordered[-counts - 1])


def stability(part: Part) -> Stability:
    """Fits of the clusters' maxima over a range of thresholds."""
    rows = []
    for u in thresholds(part):
        over = part.latency > u
        bursts = decluster(part.position[over])
        if bursts.count < FEWEST:
            continue
        excesses = Excesses(bursts.maxima(part.latency[over]) - u)
        fit = excesses.fit()
        if not fit.regular:
            continue
        low, high = excesses.profile(fit).xi()
        # The inverse of the expected information (Smith, 1984), by the delta method.
        n, rest = fit.n, 1 + fit.xi
        variance = fit.sigma**2 * 2 * rest + u**2 * rest**2 + 2 * u * fit.sigma * rest
        half = _Z * np.sqrt(variance / n)
        scale = fit.sigma - fit.xi * u
        rows.append(
            (u, n, fit.xi, low, high, scale, scale - half, scale + half, bursts.extremal_index)
        )
    return Stability(*np.array(rows, dtype=np.float64).reshape(-1, 9).T)


def mean_excess(part: Part) -> MeanExcess:
    """The mean excess of packets over a range of thresholds."""
    us = thresholds(part)
    ordered = np.sort(part.latency)
    first = np.searchsorted(ordered, us, side="right")
    counts = ordered.size - first
    # From the top down, shifted to the threshold, so that nothing large cancels.
    means = np.array([np.mean(ordered[i:] - u) for i, u in zip(first, us, strict=True)])
    spreads = np.array([np.std(ordered[i:]) for i in first])
    half = _Z * spreads / np.sqrt(np.maximum(counts, 1))
    return MeanExcess(us, means, means - half, means + half)


def quantiles(found: Assessment) -> Points | None:
    """The quantile plot of a fit: latencies of clusters and the model's quantiles."""
    if found.fit is None or found.excesses is None or found.latency is None:
        return None
    rank, middle, low, high = _ranks(found.excesses.size)
    model, below, above = (found.latency + found.fit.quantile(1 - p) for p in (middle, low, high))
    return Points(model, found.latency + found.excesses[rank], below, above)


def probabilities(found: Assessment) -> Points | None:
    """The probability plot of a fit: each cluster's probability by the model, and by its rank."""
    if found.fit is None or found.excesses is None:
        return None
    rank, middle, low, high = _ranks(found.excesses.size)
    values = exponential(found.excesses[rank], found.fit.xi, found.fit.sigma)
    return Points(middle, -np.expm1(-values), low, high)


def levels(found: Assessment, longest: float) -> Levels | None:
    """Return levels from the threshold on up to `longest` packets, and the clusters seen."""
    if found.fit is None or found.excesses is None or found.latency is None:
        return None
    between = found.fitted / found.excesses.size
    periods = np.geomspace(1.05 * between, max(longest, 30 * between), 24)
    rows = [level for m in periods if (level := found.level(float(m))) is not None]
    bounded = [row for row in rows if row.low is not None and row.high is not None]
    whole = bounded if len(bounded) == len(rows) else []
    n = found.excesses.size
    rank, middle, _, _ = _ranks(n)
    return Levels(
        np.array([row.packets for row in rows]),
        np.array([row.value for row in rows]),
        np.array([row.low for row in whole], dtype=np.float64),
        np.array([row.high for row in whole], dtype=np.float64),
        between / (1 - middle),
        found.latency + found.excesses[rank],
    )


def _ranks(n: int) -> tuple[Column, Floats, Floats, Floats]:
    """Places (from 0) of at most `POINTS` order statistics of `n`, dense at the top.

    And the middle and the 95 % interval of each one's probability: a beta distribution's.
    """
    from scipy import special

    from_top = np.unique(np.rint(np.geomspace(1, n, min(n, POINTS))).astype(np.int64))[::-1]
    rank = n - from_top
    i = rank + 1.0
    low, high = (
        np.asarray(special.betaincinv(i, n - rank, q), dtype=np.float64) for q in (0.025, 0.975)
    )
    return rank, i / (n + 1), low, high
