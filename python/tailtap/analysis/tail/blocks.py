"""A run's blocks as series: their means and maxima, over the fitted part.

Is the fitted part of a run stationary? The condition for extreme value theory to apply.

Two tests with opposite hypotheses, from statsmodels: augmented Dickey-Fuller (ADF: there is a unit
root) and Kwiatkowski-Phillips-Schmidt-Shin (KPSS: there is none). Millions of latencies are too
long a series for them, in time and because any difference becomes significant: they are run on
the means, and on the maxima, of at most `LONGEST` consecutive stretches of equal time.

Block maxima and the generalised extreme value distribution (GEV): a cross-check.

The maxima of equal stretches of time follow a GEV whatever the dependence within them, so this
needs no threshold and no declustering. It uses fewer data, so its intervals are wider; what it
says of the same return level should still agree.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from tailtap.analysis.evaluation.values import Blocks, Column
from tailtap.analysis.tail.gpd import DROP_95, Floats, growth
from tailtap.base.units import format_time
from tailtap.records.tail import StationarityRow

#: As many blocks as this are made where there are enough packets, and never fewer than `FEWEST`.
BLOCKS = 120
FEWEST = 40
_STEP = 1e-12
_IMPOSSIBLE = 1e100


@dataclass(frozen=True)
class Gev:
    """A GEV fitted to `n` block maxima; `mu` and `sigma` in their unit."""

    mu: float
    sigma: float
    xi: float
    n: int

    def level(self, blocks: float) -> float:
        """What is exceeded once in this many blocks, counting every cluster of exceedances."""
        return self.mu + self.sigma * float(growth(np.log(blocks), self.xi))


def fit(maxima: Floats) -> Gev | None:
    """The maximum likelihood estimate of a GEV (xi > -1); None when maxima do not allow it."""
    if maxima.size < FEWEST or np.ptp(maxima) == 0:
        return None
    centre, unit = float(maxima.mean()), float(maxima.std())
    x = (maxima - centre) / unit
    start = _by_moments(x)

    from scipy import optimize  # takes a third of a second to load

    def cost(p: Floats) -> float:
        return _cost(x, float(p[0]), p[1], float(p[2]))

    found = optimize.minimize(
        cost,
        np.array([start[0], np.log(start[1]), start[2]]),
        method="Nelder-Mead",
        options={"xatol": 1e-8, "fatol": 1e-10, "maxiter": 4000, "maxfev": 4000},
    )
    mu, log_sigma, xi = (float(value) for value in found.x)
    if not found.success or found.fun >= _IMPOSSIBLE or xi <= -1:
        return None
    return Gev(centre + unit * mu, unit * float(np.exp(log_sigma)), xi, maxima.size)


def level_interval(maxima: Floats, gev: Gev, blocks: float) -> tuple[float, float] | None:
    """The 95 % profile likelihood interval of `gev.level(blocks)`.

    None where xi <= -0.5, or where the data do not bound the level within a factor of a thousand.
    """
    if gev.xi <= -0.5:
        return None
    from scipy import optimize

    x = (maxima - gev.mu) / gev.sigma
    top = -_cost(x, 0.0, 0.0, gev.xi)
    estimate = float(growth(np.log(blocks), gev.xi))
    start = np.array([0.0, gev.xi])

    def drop(level: float) -> float:
        def cost(p: Floats) -> float:
            mu = level - float(np.exp(p[0]) * growth(np.log(blocks), float(p[1])))
            return _cost(x, mu, p[0], float(p[1]))

        found = optimize.minimize(
            cost, start, method="Nelder-Mead", options={"xatol": 1e-3, "fatol": 1e-4}
        )
        return top + float(found.fun) - DROP_95

    ends = []
    for direction in (-1, 1):
        step = 0.5
        while drop(estimate + direction * step) < 0:
            step *= 1.7
            if step > 1e3 * max(estimate, 1.0):
                return None

        def along(way: float, sign: int = direction) -> float:
            return drop(estimate + sign * way)

        ends.append(float(optimize.brentq(along, 0, step, xtol=1e-3)))
    low, high = estimate - ends[0], estimate + ends[1]
    return gev.mu + gev.sigma * low, gev.mu + gev.sigma * high


def _cost(x: Floats, mu: float, log_sigma: float, xi: float) -> float:
    """Minus the log likelihood of a GEV; `_IMPOSSIBLE` outside its support and for xi <= -1."""
    with np.errstate(over="ignore", invalid="ignore"):  # of scales that a search merely tries
        z = (x - mu) * np.exp(-log_sigma)
        if xi <= -1 or not 1 + xi * min(z.min(), z.max(), key=lambda end: xi * end) > 0:
            return _IMPOSSIBLE
        w = z if abs(xi) < _STEP else np.log1p(xi * z) / xi
        value = float(x.size * log_sigma + (1 + xi) * w.sum() + np.exp(-w).sum())
    return value if value < _IMPOSSIBLE else _IMPOSSIBLE


def _by_moments(x: Floats) -> tuple[float, float, float]:
    """A start from probability weighted moments (Hosking, Wallis and Wood, 1985)."""
    ordered = np.sort(x)
    n = ordered.size
    i = np.arange(n)
    b0 = ordered.mean()
    b1 = (i * ordered).sum() / (n * (n - 1))
    b2 = (i * (i - 1) * ordered).sum() / (n * (n - 1) * (n - 2))
    from scipy.special import gamma

    c = (2 * b1 - b0) / (3 * b2 - b0) - np.log(2) / np.log(3)
    k = float(np.clip(7.8590 * c + 2.9554 * c**2, -0.9, 0.9))
    if abs(k) < 1e-6:
        k = 1e-6
    sigma = float((2 * b1 - b0) * k / (gamma(1 + k) * (1 - 2**-k)))
    mu = float(b0 + sigma * (gamma(1 + k) - 1) / k)
    xi = -k
    # The start must have every value in its support.
    while (1 + xi * (ordered[[0, -1]] - mu) / sigma).min() <= 0:
        xi /= 2
    return mu, sigma, xi


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
    found = series(blocks, packets, BLOCKS)
    if not found.packets.size:
        return None
    usual = float(np.median(found.packets))
    if usual < MANY or found.packets.min() < usual / 2 or horizon <= usual:
        return None
    maxima = found.maximum.astype(np.float64)
    gev = fit(maxima)
    if gev is None or gev.xi >= 1:  # maxima without a mean: a mixture, rather than a GEV
        return None
    count = horizon / float(found.packets.mean())
    interval = level_interval(maxima, gev, count)
    return CrossCheck(gev, found.width_ns, horizon, gev.level(count), interval)
