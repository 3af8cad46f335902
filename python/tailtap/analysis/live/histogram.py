"""Latencies of any number of packets in bounded memory.

Values are counted in buckets whose widths grow with them: 1024 to a power of two, so that a bucket
is exact below 2.048 us and less than a thousandth of its value wide above; after HdrHistogram
(G. Tene, 2012). Buckets of a monitoring system are counted beside them, exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tailtap.analysis.evaluation.percentiles import percentiles_of
from tailtap.analysis.evaluation.values import Column
from tailtap.records.evaluation import Percentile
from tailtap.records.live import LiveBucket

_BITS = 10
"""A power of two has 2^10 buckets."""
PRECISION = 2.0**-_BITS
"""A value is at most this share larger than it was."""
_BUCKETS = (64 - _BITS) << _BITS
BOUNDS_NS: tuple[int, ...] = tuple(
    step * 10**decade for decade in range(3, 10) for step in (1, 2, 5)
)
"""Upper bounds of a monitoring system's buckets: 1 us, 2 us, 5 us, …, 5 s."""
SCHEMA = 5
"""Of Prometheus' exponential buckets: 2^5 to a power of two, each up to 2.2 % wide."""


class Histogram:
    """Counts of latencies in ns."""

    def __init__(self) -> None:
        """None yet."""
        self._counts = np.zeros(_BUCKETS, np.int64)
        self._below = np.zeros(len(BOUNDS_NS), np.int64)
        self.count = 0
        self.sum_ns = 0
        self.max_ns = 0

    def add(self, values: Column, counts: Column) -> None:
        """Add distinct values, ascending and not below 0, and how often each occurred."""
        if not values.size:
            return
        np.add.at(self._counts, _bucket(values), counts)
        cumulated = np.concatenate([[0], counts.cumsum()])
        self._below += cumulated[np.searchsorted(values, BOUNDS_NS, "right")]
        self.count += int(counts.sum())
        self.sum_ns += sum(map(int.__mul__, values.tolist(), counts.tolist()))
        self.max_ns = max(self.max_ns, int(values[-1]))

    def merge(self, other: Histogram) -> None:
        """Add all that another one counted."""
        self._counts += other._counts
        self._below += other._below
        self.count += other.count
        self.sum_ns += other.sum_ns
        self.max_ns = max(self.max_ns, other.max_ns)

    def percentiles(self, ps: Sequence[float]) -> list[Percentile]:
        """Percentiles `ps` with their intervals, each to `PRECISION`; none while it is empty."""
        if not self.count:
            return []
        used = np.flatnonzero(self._counts)
        # The largest one is known.
        values = np.minimum(_largest(used), self.max_ns)
        return percentiles_of((values, self._counts[used]), ps)

    @property
    def cumulative(self) -> list[int]:
        """How many latencies are not above each of `BOUNDS_NS`; exact."""
        found: list[int] = self._below.tolist()
        return found

    @property
    def exponential(self) -> list[LiveBucket]:
        """The buckets of `SCHEMA` with latencies in them, in s; those of 0 ns are in none.

        Bucket i is up to 2^(i / 2^SCHEMA) s, which belongs to it. A latency near a bound counts
        as up to `PRECISION` larger than it is.
        """
        used = np.flatnonzero(self._counts[1:]) + 1
        seconds = np.minimum(_largest(used), self.max_ns) / 1e9
        indices = np.ceil(np.log2(seconds) * 2**SCHEMA).astype(np.int64)
        found, places = np.unique(indices, return_inverse=True)
        counts = np.zeros(found.size, np.int64)
        np.add.at(counts, places, self._counts[used])
        return [
            LiveBucket(index=index, count=count)
            for index, count in zip(found.tolist(), counts.tolist(), strict=True)
        ]


def _bucket(values: Column) -> Column:
    """The place of each value's bucket."""
    # As a float a value of up to 2^53 has its exponent exactly; one above is within a bucket.
    exponents = np.frexp(values.astype(float))[1].astype(np.int64)
    shifts = np.maximum(exponents - (_BITS + 1), 0)
    place: Column = (shifts << _BITS) + (values >> shifts)
    return place


def _largest(buckets: Column) -> Column:
    """The largest value in each bucket."""
    shifts = np.maximum((buckets >> _BITS) - 1, 0)
    value: Column = ((buckets - (shifts << _BITS) + 1) << shifts) - 1
    return value
