"""The numbers of a measurement that runs, as one record."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from threading import Condition

from tailtap.analysis.evaluation.percentiles import DEFAULT
from tailtap.analysis.evaluation.settings import SECOND_NS, Settings
from tailtap.analysis.evaluation.values import WorstPacket
from tailtap.analysis.live.counting import NEVER, Counted, Counter
from tailtap.analysis.live.written import Written
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
    """A flow, and what was counted of it."""

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
