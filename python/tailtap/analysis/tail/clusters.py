"""Stalled packets come in queues: exceedances grouped into clusters.

The intervals between exceedances, in packets, tell how many of them belong together (Ferro and
Segers, Journal of the Royal Statistical Society B 65, 2003). Their estimator gives the extremal
index, the number of clusters for each exceedance, without a parameter; and the index gives the one
parameter of declustering by runs: with C clusters, the C - 1 longest intervals are those between
clusters, and the run length is the longest one within them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tailtap.analysis.evaluation.values import Column
from tailtap.analysis.tail.gpd import Floats

#: Clusters are counted in this many parts of equal length.
PARTS = 10
#: Chance makes a Poisson process so uneven with less than this probability.
UNEVEN = 0.001


@dataclass(frozen=True)
class Bursts:
    """Clusters of exceedances."""

    #: Clusters for each exceedance by the intervals estimator, above 0 and at most 1.
    extremal_index: float
    #: Exceedances at most this many packets apart belong to one cluster.
    run_length: int
    #: The place of the first exceedance of each cluster among the exceedances, ascending from 0.
    first: Column

    @property
    def count(self) -> int:
        """How many clusters there are."""
        return self.first.size

    def maxima(self, values: Floats) -> Floats:
        """The largest of the exceedances' `values` in each cluster."""
        return np.maximum.reduceat(values, self.first)


def extremal_index(position: Column) -> float:
    """The extremal index of exceedances at these places in the sequence of packets, ascending."""
    if position.size < 2:
        return 1.0
    gaps = np.diff(position).astype(np.float64)
    n = gaps.size
    if gaps.max() <= 2:
        index = 2 * gaps.sum() ** 2 / (n * (gaps**2).sum())
    else:
        index = 2 * (gaps - 1).sum() ** 2 / (n * ((gaps - 1) * (gaps - 2)).sum())
    return float(min(1.0, index))


def decluster(position: Column) -> Bursts:
    """Clusters of exceedances at these places in the sequence of packets, ascending.

    Packets that follow one another belong to one cluster whatever the index says.
    """
    index = extremal_index(position)
    if position.size < 2:
        return Bursts(index, 1, np.zeros(position.size, dtype=np.int64))
    longest = np.sort(np.diff(position))[::-1]
    between = min(int(index * position.size), longest.size)
    # The longest interval that is not among those between clusters; where it ties with them, they
    # count as within a cluster too.
    run_length = int(longest[between]) if between < longest.size else 1
    return with_run_length(position, run_length, index)


def with_run_length(position: Column, run_length: int, index: float | None = None) -> Bursts:
    """Clusters of exceedances of which none are more than `run_length` packets apart."""
    apart = np.flatnonzero(np.diff(position) > run_length) + 1
    first = np.concatenate((np.zeros(min(position.size, 1), dtype=np.int64), apart))
    return Bursts(extremal_index(position) if index is None else index, run_length, first)


def unevenness(starts: Column, packets: int) -> Column | None:
    """Clusters in each tenth of so many packets, if too uneven for a Poisson process.

    None where they are not (chi-square over the parts), or are fewer than five for each part.
    """
    from scipy import special

    if starts.size < 5 * PARTS:
        return None
    counts = np.histogram(starts, PARTS, (0, packets))[0]
    expected = starts.size / PARTS
    p = float(special.chdtrc(PARTS - 1, ((counts - expected) ** 2 / expected).sum()))
    return counts if p < UNEVEN else None
