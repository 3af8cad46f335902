"""The tail model of "Packet processing in virtualized environments", section 6, as published.

The first part of a run is fitted, the rest checked. Each threshold is a percentile of the fitted
part; all its exceedances, as they are, are fitted by maximum likelihood; the threshold with the
smallest Jensen-Shannon divergence is taken. The return level is that which is exceeded once in as
many packets as are checked. No declustering, no intervals: `analysis.py` beside it has those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tailtap.analysis.tail import peaks
from tailtap.analysis.tail.clusters import decluster, with_run_length
from tailtap.analysis.tail.goodness import jensen_shannon
from tailtap.analysis.tail.gpd import Excesses, growth
from tailtap.analysis.tail.peaks import Part, Threshold


@dataclass(frozen=True)
class PapersFit:
    """The published method at one threshold; latencies in ns.

    What cannot be had is None: everything from `xi` on without at least two different
    exceedances, `limit` of an unbounded tail, levels where nothing is checked.
    """

    threshold: Threshold
    latency: float | None
    exceedances: int
    xi: float | None = None
    sigma: float | None = None
    divergence: float | None = None
    #: What is exceeded once in the packets of the rest, by the model.
    level: float | None = None
    #: The level for ever longer times; None for an unbounded tail.
    limit: float | None = None
    #: Packets of the rest above the level, and the clusters that they form.
    above: int | None = None
    bursts: int | None = None

    @property
    def bounded(self) -> bool | None:
        """Whether the level stays finite for ever longer times; None without a fit."""
        return None if self.xi is None else self.xi < 0


def fit(fitted: Part, rest: Part, threshold: Threshold) -> PapersFit:
    """The published method at one threshold."""
    latency = peaks.latency(fitted, threshold)
    over = None if latency is None else fitted.over(latency)
    if latency is None or over is None:
        return PapersFit(threshold, None, 0)
    count = int(over.sum())
    try:
        excesses = Excesses(fitted.latency[over] - latency)
    except ValueError:
        return PapersFit(threshold, latency, count)
    found = excesses.fit()
    limit = latency + found.limit if found.limit is not None else None
    level = above = bursts = None
    # The level lies above the threshold where more than one exceedance is expected.
    if rest.packets * count > fitted.packets:
        log_m = float(np.log(rest.packets * count / fitted.packets))
        with np.errstate(over="ignore"):
            expected = latency + found.sigma * float(growth(log_m, found.xi))
        beyond = rest.position[rest.latency > expected]
        above = int(beyond.size)
        bursts = with_run_length(beyond, decluster(fitted.position[over]).run_length).count
        level = expected if np.isfinite(expected) else None
    divergence = jensen_shannon(excesses.values, found)
    return PapersFit(
        threshold, latency, count, found.xi, found.sigma, divergence, level, limit, above, bursts
    )


def choose(fits: Sequence[PapersFit]) -> PapersFit | None:
    """The fit with the smallest divergence; None when there is none."""
    fitted = [found for found in fits if found.divergence is not None]
    return min(fitted, key=lambda found: found.divergence or 0.0, default=None)
