"""The tail model of "Packet processing in virtualized environments", section 6, as published.

The first part of a run is fitted, the rest checked. Each threshold is a percentile of the fitted
part; all its exceedances, as they are, are fitted by maximum likelihood; the threshold with the
smallest Jensen-Shannon divergence is taken. The return level is that which is exceeded once in as
many packets as are checked. No declustering, no intervals: `analysis.py` beside it has those.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tailtap.analysis.tail import peaks
from tailtap.analysis.tail.goodness import jensen_shannon
from tailtap.analysis.tail.gpd import Excesses, growth
from tailtap.analysis.tail.peaks import Part, Threshold, decluster, with_run_length
from tailtap.records.record import unfilled
from tailtap.records.tail import PapersThreshold


def fit(fitted: Part, rest: Part, threshold: Threshold) -> PapersThreshold:
    """The published method at one threshold.

    What cannot be had is None: everything from `xi` on without at least two different exceedances,
    `limit_ns` of an unbounded tail, levels where nothing is checked.
    """
    found = unfilled(
        PapersThreshold, threshold=threshold.text, percentile=threshold.percentile, exceedances=0
    )
    latency = peaks.latency(fitted, threshold)
    over = None if latency is None else fitted.over(latency)
    if latency is None or over is None:
        return found
    found.latency_ns, found.exceedances = latency, (count := int(over.sum()))
    try:
        excesses = Excesses(fitted.latency[over] - latency)
    except ValueError:
        return found
    gpd = excesses.fit()
    found.xi, found.sigma_ns, found.bounded = gpd.xi, gpd.sigma, gpd.xi < 0
    found.limit_ns = latency + gpd.limit if gpd.limit is not None else None
    found.jensen_shannon = jensen_shannon(excesses.values, gpd)
    # The level lies above the threshold where more than one exceedance is expected.
    if rest.packets * count > fitted.packets:
        log_m = float(np.log(rest.packets * count / fitted.packets))
        with np.errstate(over="ignore"):
            expected = latency + gpd.sigma * float(growth(log_m, gpd.xi))
        beyond = rest.position[rest.latency > expected]
        found.packets_above = int(beyond.size)
        found.bursts_above = with_run_length(
            beyond, decluster(fitted.position[over]).run_length
        ).count
        found.level_ns = expected if np.isfinite(expected) else None
    return found


def choose(fits: Sequence[PapersThreshold]) -> PapersThreshold | None:
    """The fit with the smallest divergence; None when there is none."""
    fitted = [found for found in fits if found.jensen_shannon is not None]
    return min(fitted, key=lambda found: found.jensen_shannon or 0.0, default=None)
