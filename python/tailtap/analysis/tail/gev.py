"""Block maxima and the generalised extreme value distribution (GEV): a cross-check.

The maxima of equal stretches of time follow a GEV whatever the dependence within them, so this
needs no threshold and no declustering. It uses fewer data, so its intervals are wider; what it
says of the same return level should still agree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tailtap.analysis.tail.gpd import DROP_95, Floats, growth

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
    z = (x - mu) * np.exp(-log_sigma)
    if xi <= -1 or 1 + xi * min(z.min(), z.max(), key=lambda end: xi * end) <= 0:
        return _IMPOSSIBLE
    w = z if abs(xi) < _STEP else np.log1p(xi * z) / xi
    with np.errstate(over="ignore"):
        value = x.size * log_sigma + (1 + xi) * w.sum() + np.exp(-w).sum()
    return float(min(value, _IMPOSSIBLE))


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
