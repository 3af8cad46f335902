"""What became of the packets since the last look, while taps write.

Latencies of any number of packets in bounded memory.

Values are counted in buckets whose widths grow with them: 1024 to a power of two, so that a bucket
is exact below 2.048 us and less than a thousandth of its value wide above; after HdrHistogram
(G. Tene, 2012). Buckets of a monitoring system are counted beside them, exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec
import numpy as np

from tailtap import _core
from tailtap.analysis.evaluation.evaluate import Settings
from tailtap.analysis.evaluation.values import (
    Column,
    Pair,
    WorstPacket,
    column,
    pair,
    percentiles_of,
    summed,
    view,
)
from tailtap.analysis.live.written import Written
from tailtap.base.errors import InputError, NotSplittableError
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
        found, counts = summed(indices, self._counts[used])
        return [
            LiveBucket(index=index, count=count)
            for index, count in zip(found.tolist(), counts.tolist(), strict=True)
        ]


def _bucket(values: Column) -> Column:
    # As a float a value of up to 2^53 has its exponent exactly; one above is within a bucket.
    exponents = np.frexp(values.astype(float))[1].astype(np.int64)
    shifts = np.maximum(exponents - (_BITS + 1), 0)
    place: Column = (shifts << _BITS) + (values >> shifts)
    return place


def _largest(buckets: Column) -> Column:
    shifts = np.maximum((buckets >> _BITS) - 1, 0)
    value: Column = ((buckets - (shifts << _BITS) + 1) << shifts) - 1
    return value


SLACK_NS = 3_000_000_000
"""What is older than this was written: taps write each second, what is older than 100 ms."""
LEAST_NS = 200_000_000
"""Less time than this is not worth a look."""
WORST = 1000
"""So many of the worst packets of each look are told."""
NEVER = (1 << 63) - 1


class Span(NamedTuple):
    """From a time in ns to before another one."""

    from_ns: int
    until_ns: int


@dataclass(frozen=True)
class Counted:
    """What became of the packets that were stamped in a stretch of time."""

    span: Span
    counts: dict[str, int]
    """By the names of an evaluation's."""
    latencies: Pair
    """Distinct latencies in ns, ascending, and how often each occurred."""
    worst: list[WorstPacket]
    """Worst first."""
    lost_ns: Column
    """The stamps before the device of packets that were lost, ascending."""

    def above(self, threshold_ns: int) -> int:
        """How many packets took longer."""
        values, counts = self.latencies
        return int(counts[values > threshold_ns].sum())


class Counter:
    """Counts the packets of two captures that grow; each exactly once.

    A packet is lost when it has not come within the window. So what is counted ends a window
    before what is written. Packets that are equal to others within it are left out, and counted.
    """

    def __init__(
        self,
        ingress: Written,
        egress: Written,
        settings: Settings,
        *,
        since_ns: int | None = None,
    ) -> None:
        """Count by a key of `settings` that is known, with its window and trim.

        Packets that came before `since_ns` do not count: one of the taps may not have been there.
        """
        if settings.key == "auto":
            raise InputError("packets that still come are matched by a key that is known")
        self._sides = (ingress, egress)
        self._since_ns = since_ns
        self._trim_ns = settings.trim_ns
        self._window_ns = settings.window_ns
        # Both taps run while it counts: what has not come is lost, also at the ends of a span.
        self._matching = replace(
            settings, trim_ns=0, worst=WORST, losses=True, throughout=True
        ).matching
        self._from_ns: int | None = None
        self._whole = False
        self.until_ns = 0
        """What was stamped before is counted."""
        self.latencies = Histogram()
        self.counts: dict[str, int] = {}

    @property
    def needed_ns(self) -> int:
        """What was stamped before is not needed any more."""
        return max(0, self.until_ns - 2 * self._window_ns)

    def look(self, now_ns: int, *, complete: bool = False, ends_ns: int = NEVER) -> Counted | None:
        """Count what was written since the last look; None where that is too little.

        `now_ns` is the time by the clock of the taps; when these have ended, all is `complete`, but
        for packets that came from `ends_ns` on: one of the taps may have been gone. Raises
        `InputError` for what cannot be read.
        """
        if self._from_ns is None and not self._begin():
            return None
        assert self._from_ns is not None
        until_ns = ends_ns if complete else self._written_ns(now_ns) - self._window_ns
        if until_ns - self._from_ns < (0 if complete else LEAST_NS):
            return None
        counted = self._count(Span(self._from_ns, until_ns))
        if counted is not None:
            self._from_ns = until_ns
            self.until_ns = self._written_ns(now_ns) if complete else until_ns
            self.latencies.add(*counted.latencies)
            for name, count in counted.counts.items():
                self.counts[name] = self.counts.get(name, 0) + count
        return counted

    def _begin(self) -> bool:
        """Begin with the first packet, or behind what is to be left out at the beginning."""
        firsts = [side.first_ns() for side in self._sides]
        if self._since_ns is not None:
            self._from_ns = self._since_ns
        elif self._trim_ns:
            self._from_ns = None if firsts[1] is None else firsts[1] + self._trim_ns
        elif firsts[0] is not None:
            self._from_ns = min(first for first in firsts if first is not None)
        return self._from_ns is not None

    def _written_ns(self, now_ns: int) -> int:
        """Until when all packets are written, on both sides."""
        return min(max(side.last_ns() or 0, now_ns - SLACK_NS) for side in self._sides)

    def _count(self, span: Span) -> Counted | None:
        window = self._window_ns
        read = [
            side.reading(span.from_ns - 2 * window, span.until_ns + window) for side in self._sides
        ]
        ingress, egress = read
        if ingress is None or egress is None:
            return None
        try:
            found = _core.evaluate_within(
                ingress.source,
                egress.source,
                self._matching,
                from_ns=span.from_ns,
                until_ns=span.until_ns,
                begins=(None, None) if self._whole else (ingress.begin, egress.begin),
            )
        except NotSplittableError:
            # A record was just being written, and is whole the next time; or stamps are not in
            # order, and all of them have to be sorted.
            self._whole = not self._whole
            return None
        self._whole = False
        *times, keys = found["worst"]
        rows = zip(*(view(one) for one in times), keys, strict=True)
        return Counted(
            span,
            msgspec.json.decode(found["counts"], type=dict[str, int]),
            pair(found["distribution"]),
            [WorstPacket(*row) for row in rows],
            column(found["lost_ns"]),
        )
