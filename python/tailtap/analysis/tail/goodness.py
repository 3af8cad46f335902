"""Does a GPD fit? Tests that are valid when its parameters were estimated from the same data.

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
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np

from tailtap.analysis.tail.gpd import Fit, Floats, exponential
from tailtap.records.tail import GoodnessRecord

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
