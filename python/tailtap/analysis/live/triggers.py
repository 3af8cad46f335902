"""What makes an incident, and of which stretch of time it is."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple, Protocol

from tailtap.analysis.evaluation.percentiles import label
from tailtap.analysis.live.counting import Counted, Histogram
from tailtap.base.errors import InputError, WrongValue
from tailtap.base.units import format_time, parse_time

_PERCENTILE = re.compile(r"p(?P<p>\d+(?:\.\d+)?)\s*>\s*(?P<limit>.+?)\s+over\s+(?P<over>.+)")
LONGEST = 10
"""An incident is at most so many times as long as what is kept before it."""


class Found(NamedTuple):
    """Something that makes an incident."""

    first_ns: int
    last_ns: int
    packets: int
    words: str


class Trigger(Protocol):
    """Looks at what was counted, in the order of time."""

    def look(self, counted: Counted) -> Found | None:
        """What of it makes an incident."""
        ...


@dataclass
class Above:
    """Packets that took longer than a threshold."""

    threshold_ns: int

    def look(self, counted: Counted) -> Found | None:
        """From the first of them to the last."""
        late = [one for one in counted.worst if one.latency > self.threshold_ns]
        if not late:
            return None
        words = f"{format_time(late[0].latency)}, above {format_time(self.threshold_ns)}"
        return Found(
            min(one.ingress_ns for one in late),
            max(one.egress_ns for one in late),
            counted.above(self.threshold_ns),
            words,
        )


@dataclass
class Lost:
    """Packets that did not come."""

    def look(self, counted: Counted) -> Found | None:
        """From the first of them to the last."""
        if not (lost := counted.counts["lost"]):
            return None
        first, last = int(counted.lost_ns[0]), int(counted.lost_ns[-1])
        return Found(first, last, lost, f"{lost:,} packets lost")


@dataclass
class PercentileAbove:
    """A percentile of a window of time that rises above a limit; once for each time it does."""

    p: float
    limit_ns: int
    over_ns: int
    _steps: deque[tuple[int, Histogram]] = field(default_factory=deque)
    _is_above: bool = False

    def look(self, counted: Counted) -> Found | None:
        """What was counted last, where the percentile of the window is above the limit since."""
        step = Histogram()
        step.add(*counted.latencies)
        until_ns = counted.span.until_ns
        self._steps.append((until_ns, step))
        while self._steps[0][0] <= until_ns - self.over_ns:
            self._steps.popleft()
        window = Histogram()
        for _, one in self._steps:
            window.merge(one)
        found = next(iter(window.percentiles([self.p])), None)
        was, self._is_above = (
            self._is_above,
            (found is not None and found.supported and found.value > self.limit_ns),
        )
        if was or not self._is_above or found is None:
            return None
        values, counts = counted.latencies
        late = int(counts[values > self.limit_ns].sum())
        words = f"{label(self.p)} of {format_time(self.over_ns)} is {format_time(found.value)}"
        return Found(counted.span.from_ns, until_ns, late, words)


def parse_trigger(text: str) -> Trigger:
    """``200 us``, ``loss``, or ``p99.9 > 1 ms over 10 s``. Raises `InputError`."""
    if text.strip() == "loss":
        return Lost()
    if found := _PERCENTILE.fullmatch(text.strip()):
        p = float(Decimal(found["p"]) / 100)
        if not 0 < p < 1:
            raise WrongValue("--above", text, "a percentile lies between p0 and p100")
        return PercentileAbove(p, parse_time(found["limit"]), parse_time(found["over"]))
    try:
        return Above(parse_time(text))
    except InputError as error:
        raise WrongValue(
            "--above", text, "give a latency ('200 us'), 'p99.9 > 1 ms over 10 s', or 'loss'"
        ) from error


@dataclass
class Episode:
    """A stretch of time that makes one incident."""

    begin_ns: int
    end_ns: int
    packets: int
    words: list[str]


class Episodes:
    """Puts what was found into episodes: what is near to each other is one."""

    def __init__(self, keep_ns: int) -> None:
        """An episode begins `keep_ns` before what makes it."""
        self._keep_ns = keep_ns
        self.open: Episode | None = None

    def add(self, found: Sequence[Found]) -> list[Episode]:
        """Take in what was found, in the order of time; those that are over by that."""
        over = []
        for one in found:
            begin_ns = one.first_ns - self._keep_ns
            now = self.open
            if (
                now is not None
                and begin_ns <= now.end_ns
                and (one.last_ns - now.begin_ns <= LONGEST * self._keep_ns)
            ):
                now.end_ns = max(now.end_ns, one.last_ns)
                now.begin_ns = min(now.begin_ns, begin_ns)
                now.packets += one.packets
                now.words.append(one.words)
                continue
            if now is not None:
                over.append(now)
            self.open = Episode(begin_ns, one.last_ns, one.packets, [one.words])
        return over

    def over(self, until_ns: int) -> list[Episode]:
        """The open one, where nothing that came until a time belongs to it."""
        if self.open is None or self.open.end_ns + self._keep_ns > until_ns:
            return []
        over, self.open = self.open, None
        return [over]
