"""What became of the packets since the last look, while taps write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tailtap import _core
from tailtap.analysis.evaluation.settings import Settings
from tailtap.analysis.evaluation.values import Column, Pair, WorstPacket, column, pair, view
from tailtap.analysis.live.histogram import Histogram
from tailtap.analysis.live.written import Written
from tailtap.base.errors import InputError, NotSplittableError

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
        self._matching = settings.matching | {"trim_ns": 0, "worst": WORST, "losses": True}
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
            found["counts"],
            pair(found["distribution"]),
            [WorstPacket(*row) for row in rows],
            column(found["lost_ns"]),
        )
