"""What a result file of another tool says, whichever tool it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

import numpy as np

from tailtap.output.importers.tools.hdr import Buckets, Integers
from tailtap.records.record import Notice

MOST_NS = 10**18
"""Thirty years: no latency is longer."""
MOST_COUNT = 1 << 62
SECOND, MILLISECOND, MICROSECOND = 1_000_000_000, 1_000_000, 1_000
WIDE = 0.02
"""Buckets that are wider than this share of their values are a doubt."""

CLOSED_LOOP = Notice(
    "closed-loop",
    "a request is sent when the one before it was answered: while one is late no other is sent, so "
    "that fewer are late than would be at a rate (coordinated omission)",
)
ONLY_PERCENTILES = Notice(
    "percentiles-only", "it holds a few percentiles and no distribution: nothing between them"
)


def _none() -> Buckets:
    empty = np.empty(0, np.int64)
    return Buckets(empty, empty, empty)


@dataclass(frozen=True)
class Reading:
    """The latencies of one measurement in ns: in buckets, or as the percentiles that it prints."""

    buckets: Buckets = field(default_factory=_none)
    percentiles: Sequence[tuple[float, int]] = ()
    total: int | None = None
    lost: int | None = None
    rate: int | None = None
    """What was asked for, in requests or packets a second."""
    minimum: int | None = None
    mean: float | None = None
    maximum: int | None = None
    name: str = ""
    """What tells it from others of the same file."""
    doubts: tuple[Notice, ...] = ()


def nanoseconds(value: object, unit: int) -> int:
    """A number of a file in ns. Raises `ValueError`."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{str(value)[:40]!r} is no latency")
    found = float(value) * unit
    if not 0 <= found < MOST_NS:
        raise ValueError(f"{str(value)[:40]!r} is no latency")
    return round(found)


def share(percent: str) -> float:
    """A percentile as a number from 0 to 1, as near as one can be. Raises `ValueError`."""
    found = float(Decimal(percent).scaleb(-2))
    if not 0 <= found <= 1:
        raise ValueError(f"{percent} % is no percentile")
    return found


def number(value: object, what: str) -> int:
    """A count of a file. Raises `ValueError`."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{str(value)[:40]!r} is no number of {what}")
    found = float(value)
    if not 0 <= found < MOST_COUNT or found != int(found):
        raise ValueError(f"{str(value)[:40]!r} is no number of {what}")
    return int(found)


def bucketed(rows: Iterable[tuple[int, int, int]]) -> Buckets:
    """Buckets of their lower and upper ends, both included, and counts; in any order."""
    kept = sorted(row for row in rows if row[2])
    table = np.array(kept, np.int64).reshape(-1, 3)
    if np.any(table[:, 0] > table[:, 1]):
        raise ValueError("a bucket ends before it begins")
    return Buckets(table[:, 0], table[:, 1], table[:, 2])


def exact(values: Iterable[int]) -> Buckets:
    """Single latencies."""
    found, counts = np.unique(np.fromiter(values, np.int64), return_counts=True)
    return Buckets(found, found, counts.astype(np.int64))


def checked(found: Reading) -> Reading:
    """The same, with what its form makes doubtful. Raises `ValueError` where it says nothing."""
    buckets = found.buckets
    if not buckets.count.size and not found.percentiles:
        raise ValueError("it holds no latencies")
    if not buckets.count.size:
        return replace(found, doubts=(*found.doubts, ONLY_PERCENTILES))
    if found.maximum is not None:  # it bounds the last buckets better than they do
        high = np.minimum(buckets.high, max(found.maximum, int(buckets.low[-1])))
        buckets = replace(buckets, high=high)
    total = int(buckets.count.sum())
    doubts = [*found.doubts, *_coarse(buckets, total)]
    return replace(found, buckets=buckets, total=total, doubts=tuple(doubts))


def _coarse(buckets: Buckets, total: int) -> Iterator[Notice]:
    reached = np.searchsorted(np.cumsum(buckets.count), 0.99 * total)
    place = min(int(reached), buckets.count.size - 1)
    low, high = int(buckets.low[place]), int(buckets.high[place])
    if high - low > WIDE * max(high, 1):
        yield Notice(
            "coarse-buckets",
            f"its latencies are known as buckets: p99 is from {low:,} to {high:,} ns, and each "
            "percentile counts as the upper end of its bucket",
        )


def widths(buckets: Buckets) -> Integers:
    """How wide each bucket is."""
    return buckets.high - buckets.low + 1
