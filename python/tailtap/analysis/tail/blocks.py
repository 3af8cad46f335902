"""A run's blocks as series: their means and maxima, over the fitted part.

Is the fitted part of a run stationary? The condition for extreme value theory to apply.

Two tests with opposite hypotheses, from statsmodels: augmented Dickey-Fuller (ADF: there is a unit
root) and Kwiatkowski-Phillips-Schmidt-Shin (KPSS: there is none). Millions of latencies are too
long a series for them, in time and because any difference becomes significant: they are run on
the means, and on the maxima, of at most `LONGEST` consecutive stretches of equal time.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from tailtap.analysis.evaluation.values import Blocks, Column
from tailtap.analysis.tail import gev as generalised
from tailtap.analysis.tail.gev import Gev
from tailtap.analysis.tail.gpd import Floats
from tailtap.base.units import format_time
from tailtap.records.tail import StationarityRow

#: The longest series that is tested, and the shortest worth it.
LONGEST = 512
SHORTEST = 24
LEVEL = 0.05


def stationarity(series: Floats, name: str) -> StationarityRow | None:
    """ADF and KPSS of a series with a constant mean; None when too short or constant."""
    if series.size < SHORTEST or np.ptp(series) == 0:
        return None
    from statsmodels.tsa.stattools import adfuller, kpss

    scaled = (series - series.mean()) / series.std()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # says that p lies beyond the table
        adf, adf_p, *_ = adfuller(scaled, regression="c", autolag="AIC")
        statistic, kpss_p, *_ = kpss(scaled, regression="c", nlags="auto")
    values = [float(one) for one in (adf, adf_p, statistic, kpss_p)]
    if not np.isfinite(values).all():
        return None
    adf, adf_p, statistic, kpss_p = values
    return StationarityRow(
        series=name,
        length=series.size,
        adf=adf,
        adf_p=adf_p,
        kpss=statistic,
        kpss_p=kpss_p,
        stationary=adf_p < LEVEL and kpss_p >= LEVEL,
        unit_root=adf_p >= LEVEL and kpss_p < LEVEL,
    )


#: Maxima of fewer packets than this are no maxima in the sense of the theory.
MANY = 50


@dataclass(frozen=True)
class Series:
    """Consecutive stretches of `width_ns`: packets, mean and maximum of each (ns)."""

    width_ns: int
    packets: Column
    mean: Floats
    maximum: Column


@dataclass(frozen=True)
class CrossCheck:
    """What block maxima say of a return level, for comparison; latencies in ns."""

    gev: Gev
    width_ns: int
    packets: float
    level: float
    interval: tuple[float, float] | None


def series(blocks: Blocks, packets: int, most: int) -> Series:
    """The blocks of the first `packets` packets in at most `most` stretches of equal time.

    A last stretch that is not whole is left out, unless it is the only one; so are stretches
    without packets.
    """
    used = int(np.searchsorted(np.cumsum(blocks.packets), packets, side="right"))
    number = (blocks.start_ns[:used] - blocks.start_ns[:1]) // blocks.width_ns
    if not used:
        empty = np.zeros(0, dtype=np.int64)
        return Series(blocks.width_ns, empty, empty.astype(np.float64), empty)
    length = int(number[-1]) + 1
    factor = max(1, -(-length // most))
    group = number // factor
    whole = group < length // factor
    group = group[whole]
    first = np.flatnonzero(np.concatenate(([True], group[1:] != group[:-1])))
    counts, sums = (
        np.add.reduceat(column[:used][whole], first) for column in (blocks.packets, blocks.sum_ns)
    )
    maxima = np.maximum.reduceat(blocks.max_ns[:used][whole], first)
    return Series(blocks.width_ns * factor, counts, sums / counts, maxima)


def tests(blocks: Blocks, packets: int) -> list[StationarityRow]:
    """ADF and KPSS of the block means and maxima of the first `packets` packets."""
    found = series(blocks, packets, LONGEST)
    width = format_time(found.width_ns)
    results = (
        stationarity(found.mean, f"means of {width}"),
        stationarity(found.maximum.astype(np.float64), f"maxima of {width}"),
    )
    return [result for result in results if result is not None]


def cross_check(blocks: Blocks, packets: int, horizon: float) -> CrossCheck | None:
    """What the block maxima of the first `packets` packets say is exceeded once in `horizon`.

    `horizon` is in packets. None where there are too few blocks, or packets in a block, or maxima
    that no GEV with a mean fits.
    """
    found = series(blocks, packets, generalised.BLOCKS)
    if not found.packets.size:
        return None
    usual = float(np.median(found.packets))
    if usual < MANY or found.packets.min() < usual / 2 or horizon <= usual:
        return None
    maxima = found.maximum.astype(np.float64)
    gev = generalised.fit(maxima)
    if gev is None or gev.xi >= 1:  # maxima without a mean: a mixture, rather than a GEV
        return None
    count = horizon / float(found.packets.mean())
    interval = generalised.level_interval(maxima, gev, count)
    return CrossCheck(gev, found.width_ns, horizon, gev.level(count), interval)
