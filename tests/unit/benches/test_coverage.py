"""Median errors of our estimates beside those of other programs, as the benchmark tells them."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from scipy import stats

from benches.coverage import Way, by_evd, by_scipy, by_tailtap, errors


@pytest.mark.parametrize(
    "way",
    [
        by_scipy,
        pytest.param(
            by_evd,
            marks=pytest.mark.skipif(
                shutil.which("Rscript") is None, reason="R is not installed (r-cran-evd)"
            ),
        ),
    ],
)
@pytest.mark.parametrize("xi", [-0.2, 0.0, 0.4])
def test_no_larger_than_those_of_others(way: Way, xi: float) -> None:
    random = np.random.default_rng(round(1000 * xi) + 1000)
    samples = stats.genpareto.rvs(xi, size=(40, 500), random_state=random)
    ours, theirs = errors(by_tailtap(samples), xi), errors(way(samples), xi)
    assert ours == pytest.approx(theirs, rel=0.05) or all(np.array(ours) <= theirs)
    assert ours[0] < 0.1 and ours[1] < 0.3
