"""Jensen-Shannon divergence between excesses and the GPD fitted to them."""

from __future__ import annotations

import numpy as np

from tailtap.analysis.tail.gpd import Fit, Floats

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
