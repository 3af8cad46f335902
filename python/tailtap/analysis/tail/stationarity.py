"""Is the fitted part of a run stationary? The condition for extreme value theory to apply.

Two tests with opposite hypotheses, from statsmodels: augmented Dickey-Fuller (ADF: there is a unit
root) and Kwiatkowski-Phillips-Schmidt-Shin (KPSS: there is none). Millions of latencies are too
long a series for them, in time and because any difference becomes significant: they are run on
the means, and on the maxima, of at most `LONGEST` consecutive stretches of equal time.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from tailtap.analysis.tail.gpd import Floats

#: The longest series that is tested, and the shortest worth it.
LONGEST = 512
SHORTEST = 24
LEVEL = 0.05


@dataclass(frozen=True)
class Stationarity:
    """The two tests on one series, of `length` values.

    `kpss_p` comes from a table that ends at 0.01 and 0.1.
    """

    series: str
    length: int
    adf: float
    adf_p: float
    kpss: float
    kpss_p: float

    @property
    def unit_root(self) -> bool:
        """Both tests agree that the series is not stationary."""
        return self.adf_p >= LEVEL and self.kpss_p < LEVEL

    @property
    def stationary(self) -> bool:
        """Both tests agree that the series is stationary."""
        return self.adf_p < LEVEL and self.kpss_p >= LEVEL


def stationarity(series: Floats, name: str) -> Stationarity | None:
    """ADF and KPSS of a series with a constant mean; None when too short or constant."""
    if series.size < SHORTEST or np.ptp(series) == 0:
        return None
    from statsmodels.tsa.stattools import adfuller, kpss

    scaled = (series - series.mean()) / series.std()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # says that p lies beyond the table
        adf, adf_p, *_ = adfuller(scaled, regression="c", autolag="AIC")
        statistic, kpss_p, *_ = kpss(scaled, regression="c", nlags="auto")
    values = (float(adf), float(adf_p), float(statistic), float(kpss_p))
    return Stationarity(name, series.size, *values) if np.isfinite(values).all() else None
