"""A run's blocks as series: their means and maxima, over the fitted part."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tailtap.analysis.evaluation.values import Blocks, Column
from tailtap.analysis.tail import gev as generalised
from tailtap.analysis.tail.gev import Gev
from tailtap.analysis.tail.gpd import Floats
from tailtap.analysis.tail.stationarity import LONGEST, Stationarity, stationarity
from tailtap.base.units import format_time

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


def tests(blocks: Blocks, packets: int) -> list[Stationarity]:
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
