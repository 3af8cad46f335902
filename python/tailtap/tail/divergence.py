"""Jensen-Shannon divergence between excesses and the GPD fitted to them."""

from __future__ import annotations

import numpy as np

from tailtap.tail.gpd import Fit, Floats

#: The model's distribution is cut into this many bins of equal probability.
BINS = 20


def jensen_shannon(values: Floats, fit: Fit) -> float:
    """The divergence in bits (0 equal, 1 nothing in common) of ascending excesses and a GPD.

    Both are binned alike: `BINS` bins whose edges are quantiles of the GPD, so that it has the
    same probability in each, whatever the threshold; the excesses are counted between the same
    edges. With few excesses the divergence grows by chance, by about (BINS - 1) / (8 n ln 2).
    """
    survival = 1 - np.arange(1, BINS) / BINS
    counts = np.diff(
        np.concatenate(([0], np.searchsorted(values, fit.quantile(survival)), [values.size]))
    )
    data = counts / values.size
    model = np.full(BINS, 1 / BINS)
    middle = (data + model) / 2
    return float((_relative(data, middle) + _relative(model, middle)) / 2)


def _relative(p: Floats, q: Floats) -> float:
    """Kullback-Leibler divergence of p from q in bits, for q > 0 wherever p > 0."""
    some = p > 0
    return float((p[some] * np.log2(p[some] / q[some])).sum())
