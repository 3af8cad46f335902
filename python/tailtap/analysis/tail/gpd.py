"""The generalised Pareto distribution (GPD): maximum likelihood and profile likelihood.

An excess y over a threshold has the distribution function 1 - (1 + xi y / sigma)^(-1/xi). With
theta = xi / sigma the log likelihood of n excesses depends on the data through one function only,

    k(theta) = mean(log(1 + theta y)) / theta        (mean(y) at theta = 0)

(Grimshaw, Technometrics 35, 1993, took the same way to the maximum), so that the estimate and all
profile intervals are one-dimensional searches. Two things keep them well-conditioned: k is regular
at theta = 0, where the textbook formulas divide by xi = 0, and the search runs over

    s = -log(1 + theta max(y)),

which maps all of theta > -1 / max(y) to the real line and has the exponential distribution at 0.
Excesses are divided by their mean first; every result is in the unit of the input.

Does a GPD fit? Tests that are valid when its parameters were estimated from the same data.

Anderson-Darling's statistic weighs the tails. With estimated parameters its distribution depends
on xi, not on sigma, and hardly on the number of excesses (Choulakian and Stephens, Technometrics
43, 2001). Its quantiles are in `anderson.csv`, simulated by `benches/anderson.py`: samples from a
GPD, fitted by the very code that fits latencies.

A GPD's density falls (xi > -1). Where the observed density significantly rises somewhere, there
are two populations, such as queueing and the stalls of an interrupt: the largest distance between
the excesses' distribution function and its least concave majorant says so, and where.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tailtap.records.tail import GoodnessRecord

Floats: TypeAlias = NDArray[np.float64]

#: Half the 95 % quantile of the chi-square distribution with one degree of freedom.
DROP_95 = 1.920729410347062
#: At and below this xi maximum likelihood is not regular (Smith, Biometrika 72, 1985).
IRREGULAR = -0.5
#: Below this |theta max(y)| the series in theta replaces the logarithm.
_TINY = 1e-7
#: Steps of s within which the likelihood's maximum is looked for, and where.
_SEARCH = np.concatenate((np.arange(-25, -6, 1.0), np.arange(-6, 6, 0.4), np.arange(6, 31, 1.0)))
#: Below xi = -1 the likelihood has no maximum.
_LOWEST = -1.0
_GRID = 81
_STEPS = 12
"""Of Newton's method: it doubles the digits each time."""
_WIDE = 9.0
"""The profile is known where the log likelihood is at most this much below its maximum."""


@dataclass(frozen=True)
class Fit:
    """A GPD fitted to `n` excesses over a threshold; `sigma` and `largest` in their unit."""

    xi: float
    sigma: float
    n: int
    largest: float
    #: False where the likelihood grows towards the border xi = -1: then there is no estimate.
    interior: bool

    def quantile(self, survival: Floats) -> Floats:
        """The excess that is exceeded with the probability `survival` (0 to 1, above 0)."""
        return growth(-np.log(survival), self.xi) * self.sigma

    @property
    def regular(self) -> bool:
        """Whether the estimate is asymptotically normal and has likelihood intervals."""
        return self.interior and self.xi > IRREGULAR

    @property
    def limit(self) -> float | None:
        """The largest possible excess; None when there is none (xi >= 0)."""
        return -self.sigma / self.xi if self.xi < 0 else None


def growth(log_m: Floats | float, xi: float) -> Floats:
    """(m^xi - 1) / xi for m = exp(`log_m`), and log m at xi = 0."""
    x = np.asarray(log_m, dtype=np.float64)
    return x.copy() if abs(xi) < 1e-12 else np.asarray(np.expm1(xi * x) / xi)


def exponential(excess: Floats, xi: float, sigma: float) -> Floats:
    """Excesses as the standard exponential values that they are if the GPD holds.

    Excesses at or beyond the limit become infinite.
    """
    y = np.asarray(excess, dtype=np.float64) / sigma
    if abs(xi) < 1e-12:
        return y
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(1 + xi * y > 0, np.log1p(np.maximum(xi * y, -1.0)) / xi, np.inf)


class Excesses:
    """Excesses over a threshold (all above 0), ready for estimates and intervals.

    Raises `ValueError` when there are fewer than two, or all are equal.
    """

    def __init__(self, excess: Floats) -> None:
        """Of `excess`, in any order and unit."""
        values = np.sort(np.asarray(excess, dtype=np.float64))
        if values.size < 2 or values[0] <= 0 or values[0] == values[-1]:
            raise ValueError("a GPD needs at least two different excesses above zero")
        self.values = values
        self.n = values.size
        self.unit = float(values.mean())
        self._y = values / self.unit
        self._top = float(self._y[-1])
        self._square = float(np.mean(self._y**2))
        self._cube = float(np.mean(self._y**3))

    def _theta(self, s: float) -> float:
        return float(np.expm1(-s)) / self._top

    def _k(self, theta: float) -> float:
        """k(theta): the mean of log(1 + theta y) / theta."""
        if abs(theta) * self._top < _TINY:
            return 1 - theta * self._square / 2 + theta**2 * self._cube / 3
        return float(np.log1p(theta * self._y).mean()) / theta

    def _slope(self, s: float) -> float:
        """A multiple of the derivative of the likelihood by theta, of the same sign."""
        theta = self._theta(s)
        if abs(theta) * self._top < _TINY:
            return self._square / 2 - 1
        k = self._k(theta)
        j = float((self._y / (1 + theta * self._y)).mean())  # (1 - J) / theta
        return (1 - j * (theta + 1 / k)) / theta

    def fit(self) -> Fit:
        """The maximum likelihood estimate, for xi > -1."""
        from scipy import optimize  # takes a third of a second to load

        thetas = np.expm1(-_SEARCH) / self._top
        ks = np.array([self._k(theta) for theta in thetas])
        # At the best sigma for each theta, 1/sigma = 1/k, and xi = theta k.
        values = np.where(thetas * ks > _LOWEST, -np.log(ks) - thetas * ks - 1, -np.inf)
        inner = np.flatnonzero((values[1:-1] >= values[:-2]) & (values[1:-1] >= values[2:])) + 1
        inner = inner[np.isfinite(values[inner + 1])]
        if not inner.size:
            best = int(np.argmax(values))
            theta, k = float(thetas[best]), float(ks[best])
            return Fit(theta * k, k * self.unit, self.n, self._top * self.unit, False)
        best = int(inner[np.argmax(values[inner])])
        left, right = float(_SEARCH[best - 1]), float(_SEARCH[best + 1])
        if self._slope(left) * self._slope(right) < 0:
            s = float(optimize.brentq(self._slope, left, right, xtol=1e-13, rtol=1e-14))
        else:  # two maxima within a step: take the higher one
            found = optimize.minimize_scalar(
                lambda s: -self._profile(s), bounds=(left, right), method="bounded"
            )
            s = float(found.x)
        theta = self._theta(s)
        k = self._k(theta)
        return Fit(theta * k, k * self.unit, self.n, self._top * self.unit, True)

    def _profile(self, s: float) -> float:
        theta = self._theta(s)
        k = self._k(theta)
        if theta * k < _LOWEST:  # the best there is for this theta is the uniform distribution
            return float(np.log(-theta))
        return -float(np.log(k)) - theta * k - 1

    def profile(self, fit: Fit) -> Profile:
        """The likelihood around the estimate `fit`, for intervals.

        Raises `ValueError` where `fit` is not regular: likelihood then gives no intervals.
        """
        if not fit.regular:
            raise ValueError("there are no likelihood intervals for xi <= -0.5")
        s = -float(np.log1p(fit.xi / fit.sigma * self.unit * self._top))
        top = self.n * self._profile(s)

        # Farther right even xi = -1 has nothing to gain, and 1 + theta max(y) becomes 0.
        border = max(s, float(np.log(100 * self.n)))

        def far(direction: int) -> float:
            step = 0.02
            while (
                step < 60
                and s + direction * step < border
                and top - self.n * self._profile(s + direction * step) < _WIDE
            ):
                step *= 1.5
            return min(s + direction * step, border)

        grid = np.linspace(far(-1), far(1), _GRID)
        thetas = np.expm1(-grid) / self._top
        ks = np.array([self._k(theta) for theta in thetas])
        js = np.array([float((self._y / (1 + theta * self._y)).mean()) for theta in thetas])
        return Profile(self.n, self.unit, top, thetas, ks, js)


class Profile:
    """The likelihood of a GPD near its maximum, on a grid of theta; for n excesses."""

    def __init__(
        self, n: int, unit: float, top: float, thetas: Floats, ks: Floats, js: Floats
    ) -> None:
        """On descending `thetas`: `ks` is k(theta), `js` the mean of y / (1 + theta y)."""
        self.n = n
        self.unit = unit
        self.top = top
        self._thetas = thetas
        self._ks = ks
        # For a given xi the best theta solves mean(1 / (1 + theta y)) = 1 / (1 + xi), so the
        # profile of xi is a curve along the grid and needs no search.
        share = 1 - thetas * js
        self._xis = 1 / share - 1
        # xi / theta = sigma, also where both are 0.
        self._sigmas = js / share
        self._values = self.n * (-np.log(self._sigmas) - thetas * ks - ks / self._sigmas)

    def xi(self) -> tuple[float, float]:
        """The 95 % profile likelihood interval of xi."""
        drop = self.top - self._values
        best = int(np.argmin(drop))
        # xi falls along the grid.
        high = _crossing(self._xis[best::-1], drop[best::-1])
        low = _crossing(self._xis[best:], drop[best:])
        return low, high

    def level(self, excess: float, log_m: float) -> float:
        """How much less likely than the maximum it is that a level lies at `excess`.

        The level is what is exceeded once, on average, in m units of time, `log_m` = log(m rate)
        where rate is the number of excesses in a unit of time that was observed: the numbers of
        excesses are Poisson, and their uncertainty is part of the interval.
        """
        x = excess / self.unit
        thetas, ks = self._thetas, self._ks
        usable = 1 + thetas * x > 1e-12
        thetas, ks = thetas[usable], ks[usable]
        if not thetas.size:
            return np.inf
        with np.errstate(divide="ignore", invalid="ignore"):
            z = np.where(np.abs(thetas) * x < _TINY, x, np.log1p(thetas * x) / thetas)
        # For each theta the likelihood is concave in b = 1/sigma, and its maximum lies between
        # what the excesses say (1/k) and what their number says (log_m/z).
        low, high = np.minimum(1 / ks, log_m / z), np.maximum(1 / ks, log_m / z)
        uniform = -thetas  # xi = -1; below it the likelihood has no maximum
        b = (low + high) / 2
        for _ in range(_STEPS):
            number = np.exp(np.minimum(z * b - log_m, 700))
            slope = 1 - number + (1 / b - ks) / z
            rising = slope > 0
            low, high = np.where(rising, b, low), np.where(rising, high, b)
            newton = b + slope / (z * number + 1 / (z * b**2))
            b = np.where((newton > low) & (newton < high), newton, (low + high) / 2)
        b = np.maximum(b, uniform)
        excesses = np.log(b) - (thetas + b) * ks
        surplus = z * b - log_m
        number = surplus - np.exp(np.minimum(surplus, 700)) + 1
        values = self.n * (excesses + number)
        return self.top - _peak(values)

    def level_interval(self, excess: float, log_m: float) -> tuple[float, float | None]:
        """The 95 % profile likelihood interval of a level whose estimate is `excess`.

        The upper end is None when the data do not bound it within a factor of a million.
        """

        def beyond(value: float) -> float:
            return self.level(value, log_m) - DROP_95

        low = excess
        while low > 1e-9 * excess and beyond(low) < 0:
            low *= 0.9
        left = 0.0 if beyond(low) < 0 else _root(beyond, low, min(low / 0.9, excess))
        high = excess
        while high < 1e6 * excess and beyond(high) < 0:
            high = high * 1.1 if high < 4 * excess else high * 2
        if beyond(high) < 0:
            return left, None
        return left, _root(beyond, excess, high)


def _root(function: Callable[[float], float], left: float, right: float) -> float:
    from scipy import optimize

    return float(optimize.brentq(function, left, right, rtol=1e-7))


def _crossing(values: Floats, drops: Floats) -> float:
    """Where the drop of the likelihood, which grows from its first element, reaches 95 %."""
    beyond = np.flatnonzero(drops >= DROP_95)
    if not beyond.size:
        return float(values[-1])
    i = int(beyond[0])
    # The square root of the drop is nearly linear.
    a, b = np.sqrt(np.maximum(drops[[i - 1, i]], 0))
    share = (np.sqrt(DROP_95) - a) / (b - a)
    return float(values[i - 1] + share * (values[i] - values[i - 1]))


def _peak(values: Floats) -> float:
    """The maximum of a smooth function on an even grid, by the parabola through its top."""
    i = int(np.argmax(values))
    if i in (0, values.size - 1):
        return float(values[i])
    left, top, right = values[i - 1 : i + 2]
    bend = left - 2 * top + right
    return float(top - (right - left) ** 2 / (8 * bend)) if bend < 0 else float(top)


#: sqrt(n) times the distance of majorant and distribution function that 0.14 % of uniform samples
#: exceed (1 % over seven scales). Of all falling densities the uniform one comes farthest.
#: Simulated by `benches/anderson.py`.
_MAJORANT = 1.9
#: Shares of the largest excesses that are looked at for a second population, and the fewest.
_SHARES = (1, 2, 4, 8, 16, 32, 64)
_FEWEST = 20
_LOOKED_AT = 4096


@dataclass(frozen=True)
class Mixture:
    """Two populations among excesses: few lie between `low` and `high`, `above` beyond."""

    low: float
    high: float
    above: int


def anderson_darling(values: Floats, fit: Fit) -> float:
    """A^2 of ascending excesses and a GPD; infinite when one lies beyond the GPD's limit."""
    e = exponential(values, fit.xi, fit.sigma)
    if not np.isfinite(e).all():
        return np.inf
    n = e.size
    i = np.arange(1, n + 1)
    with np.errstate(divide="ignore"):
        logs = np.log(-np.expm1(-e)) - e[::-1]
    return float(-n - np.mean((2 * i - 1) * logs))


def goodness(values: Floats, fit: Fit) -> GoodnessRecord:
    """The Anderson-Darling test of ascending excesses against the GPD that was fitted to them.

    `p` lies within 0.001 and 0.999: the table goes no farther.
    """
    # Excesses at the limit itself make it infinite; the table ends far below.
    statistic = min(anderson_darling(values, fit), float(values.size))
    xis, levels, table = _table()
    quantiles = np.array([np.interp(fit.xi, xis, column) for column in table.T])
    p = float(np.exp(np.interp(statistic, quantiles, np.log(levels))))
    return GoodnessRecord(statistic=statistic, p=p)


def second_population(values: Floats) -> Mixture | None:
    """Where the density of ascending excesses rises, if it significantly does (1 %)."""
    counts = [values.size // share for share in _SHARES if values.size // share >= _FEWEST]
    for count in reversed(counts):
        base = float(values[-count - 1]) if count < values.size else 0.0
        distance, low, high = majorant_distance(values[-count:] - base)
        if np.sqrt(count) * distance > _MAJORANT:
            above = values.size - int(np.searchsorted(values, base + high))
            return Mixture(base + low, base + high, above)
    return None


def majorant_distance(top: Floats) -> tuple[float, float, float]:
    """How far the distribution function of ascending excesses is below its concave majorant.

    Also the emptier stretch: from where the majorant leaves the function to where the function
    is farthest below, just before it steps up. Of many excesses every n-th is looked at.
    """
    x = np.concatenate(([0.0], top[:: -(-top.size // _LOOKED_AT)]))
    y = (
        np.concatenate(([0.0], np.arange(1, top.size + 1)[:: -(-top.size // _LOOKED_AT)]))
        / top.size
    )
    hull = [0]
    for i in range(1, x.size):
        while len(hull) > 1:
            a, b = hull[-2], hull[-1]
            if (y[b] - y[a]) * (x[i] - x[b]) > (y[i] - y[b]) * (x[b] - x[a]):
                break
            hull.pop()
        hull.append(i)
    below = np.interp(x, x[hull], y[hull])[1:] - y[:-1]
    worst = int(np.argmax(below))
    left = max(vertex for vertex in hull if vertex <= worst)
    return float(below[worst]), float(x[left]), float(x[worst + 1])


@cache
def _table() -> tuple[Floats, Floats, Floats]:
    """xi of each row, probability of each column (descending), and the quantiles of A^2."""
    with (files("tailtap.analysis.tail") / "anderson.csv").open(encoding="utf-8") as file:
        rows = list(csv.reader(file))
    levels = np.array([float(cell) for cell in rows[0][1:]])
    body = np.array([[float(cell) for cell in row] for row in rows[1:]])
    return body[:, 0], levels, body[:, 1:]


#: The model's distribution is cut into this many bins of equal probability.
BINS = 20


def jensen_shannon(values: Floats, fit: Fit) -> float:
    """The divergence in bits (0 equal, 1 nothing in common) of ascending excesses and a GPD.

    Both are binned alike: `BINS` bins whose edges are quantiles of the GPD, so that it has the
    same probability in each, whatever the threshold; the excesses are counted between the same
    edges. With few excesses the divergence grows by chance, by about (BINS - 1) / (8 n ln 2).
    """
    survival = 1 - np.arange(1, BINS) / BINS
    from scipy.special import rel_entr  # a fifth of a second that most commands do not need

    counts = np.diff(
        np.concatenate(([0], np.searchsorted(values, fit.quantile(survival)), [values.size]))
    )
    data = counts / values.size
    model = np.full(BINS, 1 / BINS)
    middle = (data + model) / 2
    return float((rel_entr(data, middle) + rel_entr(model, middle)).sum() / (2 * np.log(2)))
