"""The numbers of a measurement that runs, as one record, and what makes an incident of a time."""

from __future__ import annotations

import heapq
import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from threading import Condition
from typing import NamedTuple, Protocol

from tailtap.analysis.evaluation.evaluate import SECOND_NS, Settings
from tailtap.analysis.evaluation.values import DEFAULT, WorstPacket, label
from tailtap.analysis.live.counting import NEVER, Counted, Counter, Histogram
from tailtap.analysis.live.written import Written
from tailtap.base.errors import InputError, WrongValue
from tailtap.base.units import format_count, format_time, parse_time
from tailtap.records.causes import CauseRow
from tailtap.records.evaluation import WorstRecord
from tailtap.records.live import LiveCause, LiveFlow, LiveRecord

WORST = 10
"""So many of the worst packets of a flow are shown."""


@dataclass(frozen=True)
class Watched:
    """A flow whose packets are counted as its captures grow."""

    name: str
    ingress: Written
    egress: Written
    settings: Settings
    since_ns: int | None = None
    """Packets that came before do not count; None where all do."""


class Board:
    """Where the latest numbers hang; any thread may look at it."""

    def __init__(self) -> None:
        """Empty."""
        self._changed = Condition()
        self._latest: LiveRecord | None = None

    @property
    def latest(self) -> LiveRecord | None:
        """The latest numbers; None before there are any."""
        return self._latest

    def hang(self, record: LiveRecord) -> None:
        """Replace the numbers."""
        with self._changed:
            self._latest = record
            self._changed.notify_all()

    def newer(self, than: LiveRecord | None, seconds: float) -> LiveRecord | None:
        """Wait up to `seconds` for other numbers than these; the latest ones."""
        with self._changed:
            self._changed.wait_for(lambda: self._latest is not than, seconds)
            return self._latest


class Numbers:
    """Counts the flows of one measurement."""

    def __init__(
        self,
        run: str,
        flows: Sequence[Watched],
        *,
        number: int = 1,
        runs: int = 1,
        seconds: float | None = None,
        notes: Sequence[str] = (),
        causes: Sequence[LiveCause] = (),
    ) -> None:
        """Of the run called `run`, which takes `seconds` where that is known; `causes` are those of
        runs before it.
        """
        self._run, self._number, self._runs = run, number, runs
        self._seconds = seconds
        self._flows = [_Flow(flow) for flow in flows]
        self.notes, self._causes = list(notes), list(causes)

    def look(
        self, now_ns: int, *, complete: bool = False, ends_ns: int = NEVER
    ) -> list[tuple[str, Counted]]:
        """Count what came since; by flow, what there was to count.

        Parameters and errors are those of `Counter.look`.
        """
        found = ((one, one.look(now_ns, complete=complete, ends_ns=ends_ns)) for one in self._flows)
        return [(one.watched.name, counted) for one, counted in found if counted is not None]

    @property
    def needed_ns(self) -> int:
        """What was stamped before is not needed to count on."""
        return min((one.counter.needed_ns for one in self._flows), default=0)

    @property
    def until_ns(self) -> int:
        """What was stamped before is counted, of all flows."""
        return min((one.counter.until_ns for one in self._flows), default=0)

    def record(self, now_ns: int, *, running: bool = True) -> LiveRecord:
        """All that is known at a time by the clock of the taps."""
        firsts = [first for one in self._flows if (first := one.watched.ingress.first_ns())]
        elapsed = max(0, now_ns - min(firsts, default=now_ns)) / SECOND_NS
        window = max((one.watched.settings.window_ns for one in self._flows), default=0)
        return LiveRecord(
            run=self._run,
            number=self._number,
            runs=self._runs,
            running=running,
            time_ns=now_ns,
            elapsed_s=elapsed,
            left_s=None if self._seconds is None else max(0.0, self._seconds - elapsed),
            window_ns=window,
            flows=[one.record() for one in self._flows],
            causes=self._causes,
            notes=list(self.notes),
        )


class _Flow:
    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self.counter = Counter(
            watched.ingress, watched.egress, watched.settings, since_ns=watched.since_ns
        )
        self._worst: list[WorstPacket] = []
        self._rate = 0.0

    def look(self, now_ns: int, *, complete: bool, ends_ns: int) -> Counted | None:
        counted = self.counter.look(now_ns, complete=complete, ends_ns=ends_ns)
        if counted is not None:
            self._worst = heapq.nlargest(WORST, [*self._worst, *counted.worst])
            if not complete:  # what comes last has no end that is known
                took = counted.span.until_ns - counted.span.from_ns
                self._rate = counted.counts["ingress"] * SECOND_NS / took
        return counted

    def record(self) -> LiveFlow:
        counts, latencies = self.counter.counts, self.counter.latencies
        left_out = ("duplicate_ingress", "duplicate_egress", "unmatched_egress", "noncausal")
        return LiveFlow(
            name=self.watched.name,
            ingress=counts.get("ingress", 0),
            egress=counts.get("egress", 0),
            matched=latencies.count,
            lost=counts.get("lost", 0),
            left_out=sum(counts.get(name, 0) for name in left_out),
            rate=self._rate,
            until_ns=self.counter.until_ns,
            sum_ns=latencies.sum_ns,
            max_ns=latencies.max_ns if latencies.count else None,
            percentiles=latencies.percentiles(DEFAULT),
            below=latencies.cumulative,
            exponential=latencies.exponential,
            worst=[WorstRecord(**packet._asdict()) for packet in self._worst],
        )


@dataclass
class CauseSums:
    """Packets and delay by cause and detail."""

    _sums: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)

    def add(self, causes: Iterable[CauseRow]) -> None:
        """Add those of one explanation; what was merely present is none of them."""
        for row in causes:
            if row.claim == "present":
                continue
            packets, delay = self._sums.get((row.cause, row.detail), (0, 0))
            told = (packets + row.packets, delay + row.delay_ns)
            self._sums[row.cause, row.detail] = told

    @property
    def rows(self) -> list[LiveCause]:
        """The causes, the largest delay first; any thread may ask."""
        rows = [
            LiveCause(cause=cause, detail=detail, packets=packets, delay_ns=delay)
            for (cause, detail), (packets, delay) in list(self._sums.items())
        ]
        return sorted(rows, key=lambda row: -row.delay_ns)


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
        return Found(first, last, lost, f"{format_count(lost, 'packet')} lost")


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
        late = counted.above(self.limit_ns)
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
