"""What cores did as slices in lanes: within a lane, slices nest or do not touch.

A lane is a context of a core. An interrupt that comes within a softirq lies in a lane of its own,
so that each lane can be drawn, and read by programs that know of nothing but nesting.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from tailtap.analysis.causes import trace as kinds
from tailtap.analysis.causes.taxonomy import (
    FOREIGN,
    KERNEL_THREAD,
    RAISER,
    SERVED,
    STEAL,
    Named,
    name,
    raiser,
)
from tailtap.analysis.causes.trace import Events, Sender, Trace

Lane = Literal["task", "softirq", "interrupt", "nmi", "steal", "waiting", "lost"]
LANES: tuple[Lane, ...] = ("lost", "steal", "nmi", "interrupt", "softirq", "task", "waiting")
"""From what has the core in any case down to what does not have it."""
_CONTEXTS: dict[int, Lane] = {
    kinds.TASK: "task", kinds.IDLE: "task", kinds.SOFTIRQ: "softirq", kinds.IRQ: "interrupt",
    kinds.VECTOR: "interrupt", kinds.NMI: "nmi", kinds.LOST: "lost",
}  # fmt: skip
_REFINEMENTS = frozenset((kinds.IPI_FUNCTION, kinds.WORK, kinds.HRTIMER, kinds.TLB_FLUSH,
                          kinds.PAGE_FAULT, kinds.RECLAIM, kinds.COMPACTION,
                          kinds.KVM_EXIT, kinds.FOREIGN_RX))  # fmt: skip
_OVERLAYS = frozenset((kinds.IPI_DELAY, kinds.WAKEUP, kinds.RUNNABLE))
_REFINED: tuple[Lane, ...] = ("nmi", "interrupt", "softirq", "task")
_KERNEL_THREAD_BITS, _SERVED_BIT = 0xFF << 40, 1 << 48


class Slice(NamedTuple):
    """A stretch of time in a lane of a core, in ns."""

    cpu: int
    lane: Lane
    start: int
    end: int
    name: str
    """What people read."""
    cause: str
    """A name of `CAUSES`, or ``serving``, ``idle``, ``unseen``."""
    kind: int
    id: int
    aux: int
    number: int = 0
    """Of so many short ones this is the window; 0 for a slice of its own."""
    depth: int = 0
    """How many slices of its lane it lies in."""
    guest: bool = False
    """Whether the core is one of the run's virtual machine."""

    @property
    def core(self) -> str:
        """The core as people read it."""
        return f"guest CPU {self.cpu}" if self.guest else f"CPU {self.cpu}"

    @property
    def place(self) -> tuple[bool, int, int]:
        """Where its lane belongs among all: lanes of the guest come last."""
        return self.guest, self.cpu, LANES.index(self.lane)


def slices(events: Events, trace: Trace) -> list[Slice]:
    """The slices of some events, each lane of a core in the order of time, parents first.

    Those of a lane nest, but for short ones (with a `number`) and for those that wait.
    """
    found: dict[tuple[int, Lane], list[Slice]] = {}
    refining: list[Slice] = []
    short: list[Slice] = []
    for one in _slices(events, trace):
        if one.number:
            short.append(one)
        elif one.kind in _REFINEMENTS:
            refining.append(one)
        else:
            found.setdefault((one.cpu, one.lane), []).append(one)
    for ones in found.values():
        ones.sort(key=_order)
    begun = {key: [one.start for one in ones] for key, ones in found.items()}
    refined: dict[tuple[int, Lane], list[Slice]] = {}
    for one in refining:
        covering = (lane for lane in _REFINED if _covers(one, found, begun, lane))
        lane: Lane = next(covering, "task")
        refined.setdefault((one.cpu, lane), []).append(one._replace(lane=lane))
    result = sorted(short, key=_order)
    for key in sorted(found.keys() | refined.keys()):
        ones = sorted(found.get(key, []) + refined.get(key, []), key=_order)
        result += ones if key[1] == "waiting" else nested(ones)
    return result


def nested(ones: Iterable[Slice]) -> Iterator[Slice]:
    """Slices of one lane, cut where they would stand out of the one in which they begin."""
    open_: list[Slice] = []
    for one in ones:
        while open_ and open_[-1].end <= one.start:
            open_.pop()
        end = min(one.end, open_[-1].end) if open_ else one.end
        kept = one._replace(end=end, depth=len(open_))
        yield kept
        if kept.end > kept.start:
            open_.append(kept)


def rows(intervals: Sequence[tuple[int, int]]) -> list[int]:
    """For intervals in the order of their starts, rows in which none overlaps another."""
    ends: list[int] = []
    placed = []
    for start, end in intervals:
        row = next((row for row, until in enumerate(ends) if until <= start), len(ends))
        ends[row : row + 1] = [max(end, start + 1)]
        placed.append(row)
    return placed


def _order(one: Slice) -> tuple[int, int, bool]:
    return one.start, -one.end, one.kind in _REFINEMENTS


def _covers(
    one: Slice,
    found: dict[tuple[int, Lane], list[Slice]],
    begun: dict[tuple[int, Lane], list[int]],
    lane: Lane,
) -> bool:
    place = bisect_right(begun.get((one.cpu, lane), []), one.start) - 1
    if place < 0:
        return False
    return one.start < found[one.cpu, lane][place].end


def _slices(events: Events, trace: Trace) -> Iterator[Slice]:
    """Of each event its slice, and of one that tells of steal that as well."""
    records = events.records
    columns = (records[field].tolist() for field in ("start", "cpu", "kind", "id", "aux"))
    more = (events.end, events.number, events.stolen, events.stolen_ns, events.foreign)
    for start, cpu, kind, id, aux, end, number, stolen, stolen_ns, foreign in zip(
        *columns, *(column.tolist() for column in more), strict=True
    ):
        if stolen_ns:
            yield Slice(cpu, "steal", stolen, stolen + stolen_ns, "steal", "steal", STEAL, 0, 0)
        lane = _CONTEXTS.get(kind) or ("waiting" if kind in _OVERLAYS else "task")
        if kind not in _CONTEXTS and kind not in _OVERLAYS and kind not in _REFINEMENTS:
            continue
        told, cause = _named(kind, id, 0 if number else aux, foreign, trace)
        if number:
            told = f"{told} ×{number:,}"
        yield Slice(cpu, lane, start, end, told, cause, kind, id, aux, number)


def _named(kind: int, id: int, aux: int, foreign: bool, trace: Trace) -> tuple[str, str]:
    """What people read, and the cause that it is."""
    if kind == kinds.IDLE:
        return f"idle, state {id}", "idle"
    if kind == kinds.LOST:
        return f"{aux:,} records lost" if aux else "not traced", "unseen"
    thread = KERNEL_THREAD if aux & _KERNEL_THREAD_BITS else 0
    owner = {
        kinds.IPI_FUNCTION: (kind, aux, id),
        kinds.WORK: (kind, aux, 0),
        kinds.HRTIMER: (kind, aux, 0),
        kinds.SOFTIRQ: (kind, id, (FOREIGN if foreign else 0) | (aux >> 32 << RAISER)),
        kinds.TASK: (kind, id, thread | (SERVED if aux & _SERVED_BIT else 0)),
    }.get(kind, (kind, id, 0))
    found = name(owner, trace.names, trace.served) or Named("unexplained", "")
    by = raiser(owner[2], trace.names) if kind == kinds.SOFTIRQ else None
    raised = f", raised by {by.short}" if by else ""
    match kind:
        case kinds.TASK:
            return trace.names.thread(id), found.cause
        case kinds.SOFTIRQ if found.cause in ("serving", "foreign-net-rx"):
            return f"{'NET_RX' if id == 3 else f'softirq {id}'}{raised}", found.cause
        case kinds.IPI_DELAY:
            sender = Sender.of(id)
            who = f" from {sender.words(trace.names)}" if sender else ""
            return f"IPI under way{who}", found.cause
        case kinds.WAKEUP:
            return f"waking {trace.names.thread(id)}", found.cause
        case kinds.RUNNABLE:
            return f"{trace.names.thread(id)} waits for the core", found.cause
    return f"{found.short}{raised}", found.cause
