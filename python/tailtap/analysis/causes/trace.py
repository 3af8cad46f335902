"""What a run's trace says of itself, whether it belongs to the run, and its records as columns.

Times in which packets left a core, and its trace saw nothing that served them: where softirqs alone
serve, a packet leaves during one of them. A kernel that does not run the tracer's programs for a
while leaves no record of that. Of such a time only the task that had the core is known, and not
whether the core had been told of packets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from tailtap._core import TRACE_KINDS
from tailtap.analysis.causes.taxonomy import Names, Served
from tailtap.analysis.clocks.alignment import Times
from tailtap.analysis.clocks.host import HostClock, host_clock
from tailtap.analysis.evaluation.clocks import Clocks, clocks_of
from tailtap.analysis.evaluation.values import Column
from tailtap.analysis.runs.run import Run
from tailtap.base.errors import InputError, NotRead, OfAnotherKind
from tailtap.base.foreign import map_records
from tailtap.records.record import read
from tailtap.records.stamps import read_stamps
from tailtap.records.trace import NET_RX, Server, TraceRecord

GUEST_EVENTS, GUEST_RECORD = "trace-guest.events", "trace-guest.json"


def with_trace() -> str:
    """How to measure a run that can be explained."""
    return "measure it with `trace: thin` in the experiment file, or --set trace=thin"


@dataclass(frozen=True)
class Trace:
    """The trace of a run."""

    events: Path
    record: TraceRecord
    """All of its times are by its own clock, as those of its events."""
    served: Served
    """By what packets are served, in all nodes of the device."""
    names: Names
    nodes: Mapping[str, Served] = field(default_factory=dict)
    """By what packets are served in each node, where the device has several."""
    clock: HostClock | None = None
    """How its clock stands to that of the stamps; None where both are one."""
    clocks: Clocks | None = None
    """How the clock of the stamps behind the DuT stands to that of those before it; None where both
    are one."""

    @cached_property
    def mapped(self) -> npt.NDArray[Any]:
        """All of its records, which stay on the disk. Raises `InputError`."""
        try:
            found = map_records(self.events, MAGIC, len(MAGIC), RECORD)
        except (OSError, ValueError) as error:
            raise NotRead(error, "").at(self.events) from error
        if found is None:
            raise OfAnotherKind("trace", "give a run that was measured with `trace: thin`").at(
                self.events
            )
        return found

    @property
    def whole(self) -> npt.NDArray[Any]:
        """Its records up to the first that no tracer wrote. Raises `InputError`."""
        records = np.array(self.mapped)
        bad = np.flatnonzero((records["kind"] == 0) | (records["start"] > _LATEST_NS))
        return records[: bad[0]] if bad.size else records

    @property
    def span_ns(self) -> tuple[int, int]:
        """When it began and ended, by the clock of the stamps."""
        ends = self.record.started_ns, self.record.ended_ns
        if self.clock is None:
            return ends
        first, last = self.clock.stamps_ns(np.array(ends)).tolist()
        return first, last


def has_trace(run: Run) -> bool:
    """Whether the run was measured with a trace."""
    return run.own_folder is not None and (run.own_folder / "trace.events").is_file()


def load(run: Run) -> Trace:
    """The trace of a run.

    Raises `InputError` when it has none, when the tracer did not come to its end, when it was made
    on another boot, by another kind of clock or at another time than the packets, and when another
    machine stamped these and nobody knows how the clocks stood.
    """
    folder = run.own_folder
    if folder is None or not (folder / "trace.events").is_file():
        if run.origin is not None:
            imported = InputError("it was imported, and only runs of tailtap have a trace")
            raise imported.at(folder or run.slug)
        remedy = with_trace()
        if run.traits is not None and not run.traits.has_dut:
            remedy = "platform wire has no device to trace: take a run that has one"
        raise InputError(f"it has no trace: {remedy}").at(folder or run.slug)
    path = folder / "trace.json"
    if not path.is_file():
        raise InputError(
            "there is none: the trace was cut off before its end and cannot be trusted; "
            "measure again"
        ).at(path)
    trace = _trace(folder / "trace.events", _read(path))
    clock = host_clock(run.record, f"{path}: the trace", run.taps.get("ingress"))
    clocks = clocks_of(run.record.taps if run.record else None)
    if clocks is not None and clock is not None:
        clock = replace(clock, bend_ns=clock.bend_ns + clocks.within_ns)
    trace = replace(trace, clock=clock, clocks=clocks)
    _belongs(path, trace, run)
    return trace


def trace_in(folder: Path) -> Trace:
    """The trace in `folder`, whatever it is of. Raises `InputError`."""
    return _trace(folder / "trace.events", _read(folder / "trace.json"))


def load_guest(folder: Path) -> Trace:
    """The trace that was taken in the run's virtual machine, on its clock. Raises `InputError`."""
    return _trace(folder / GUEST_EVENTS, _read(folder / GUEST_RECORD))


def _read(path: Path) -> TraceRecord:
    record = read(path, TraceRecord)
    if record.served is None:
        raise InputError(
            "it does not say by what packets are served: give "
            "`tailtap trace --served`, or measure with a forwarder that says so"
        ).at(path)
    return record


def _trace(events: Path, record: TraceRecord) -> Trace:
    cpus, rows = tuple(record.cpus), record.served
    assert rows is not None
    nodes = {row.node: _served(row, cpus) for row in rows} if isinstance(rows, list) else {}
    served = (
        Served.together(tuple(nodes.values())) if isinstance(rows, list) else _served(rows, cpus)
    )
    names = Names(
        {int(pid): name for pid, name in record.names.pids.items()},
        {int(number): name for number, name in record.names.irqs.items()},
        {int(address, 16): name for address, name in record.names.functions.items()},
        {int(pid): task for pid, task in record.names.tasks.items()},
    )
    return Trace(events, record, served, names, nodes)


def _served(row: Server, traced: tuple[int, ...]) -> Served:
    return Served.one(
        row.by, vector=row.vector or NET_RX, pids=row.pids, cpus=tuple(row.cpus) or traced
    )


def _belongs(path: Path, trace: Trace, run: Run) -> None:
    record = trace.record
    boot = run.environment.boot_id
    if boot and record.boot_id and boot != record.boot_id:
        raise InputError(
            "the trace is of another boot of the DuT's machine than the run; its clock "
            "says nothing of the packets"
        ).at(path)
    by_card = run.taps["ingress"].clock_device if "ingress" in run.taps else None
    if (run.clock != "monotonic" and by_card is None) or record.clock != "monotonic":
        raise InputError(
            f"its packets were stamped by the clock {run.clock}, its trace by "
            f"{record.clock}: only stamps of the kernel's monotonic clock can be joined, and of "
            "cards whose clocks were read"
        ).at(run.slug)
    side = run.stored.inputs.ingress
    first, last = side.first_ns, side.last_ns
    began, ended = trace.span_ns
    if ended <= first or last <= began:
        early = f"{(first - ended) / 1e9:,.1f} s before"
        away = early if ended <= first else f"{(began - last) / 1e9:,.1f} s after"
        raise InputError(
            f"the trace is of another run: it began and ended {away} the run's packets"
        ).at(path)
    if not set(trace.served.cpus) <= set(record.cpus):
        raise InputError(
            f"packets are served on CPUs {_list(trace.served.cpus)}, and traced were "
            f"{_list(record.cpus)}: measure again with these among the traced ones"
        ).at(path)


def _list(cpus: Sequence[int]) -> str:
    return ",".join(map(str, cpus)) or "none"


MAGIC = b"TTTRACE1"
RECORD = np.dtype(
    [("start", "<u8"), ("dur", "<u4"), ("kind", "u1"), ("flags", "u1"), ("cpu", "<u2"),
     ("aux", "<u8"), ("id", "<u4"), ("steal", "<u4")]
)  # fmt: skip
"""A record of `trace.events`, see docs/reference/files.md."""
Window = tuple[int, int]
"""From and until, in ns."""
IRQ, VECTOR, IPI_FUNCTION, IPI_DELAY = (
    TRACE_KINDS[name] for name in ("irq", "vector", "ipi-function", "ipi-delay")
)
SOFTIRQ, TASK, WAKEUP, WORK, IDLE, NMI, HRTIMER = (
    TRACE_KINDS[name] for name in ("softirq", "task", "wakeup", "work", "idle", "nmi", "hrtimer")
)
TLB_FLUSH, PAGE_FAULT, RECLAIM, COMPACTION = (
    TRACE_KINDS[name] for name in ("tlb-flush", "page-fault", "reclaim", "compaction")
)
KVM_EXIT, RUNNABLE, FOREIGN_RX, LOST = (
    TRACE_KINDS[name] for name in ("kvm-exit", "runnable", "foreign-rx", "lost")
)
UNKNOWN_SENDER = 0xFFFFFFFF
ACCUMULATED = 1
_LONGEST = 0xFFFFFFFF
_LATEST_NS = 1 << 62


@dataclass(frozen=True)
class Sender:
    """Who asked another core for something."""

    cpu: int
    thread: int
    """The thread that had this core; 0 where it idled, or nobody told."""

    @classmethod
    def of(cls, word: int) -> Sender | None:
        """What `id` tells of a function call or its delay; None if that is not known."""
        return None if word == UNKNOWN_SENDER else cls(word & 0x3FF, word >> 10)

    def words(self, names: Names) -> str:
        """As people read it."""
        known = self.thread in names.pids
        return names.thread(self.thread) if known else f"CPU {self.cpu}"


@dataclass(frozen=True)
class Events:
    """Records of a trace. Times are in ns."""

    records: npt.NDArray[Any]
    """As they stand in the file, see `RECORD`."""
    end: Column
    """Where each interval ends; of an accumulated record, the last of its short ones."""
    number: Column
    """How many short ones an accumulated record stands for, 0 for any other."""
    stolen: Column
    """Where the steal that a record tells of is laid (docs/explanation/causes.md)."""
    stolen_ns: Column
    """How much of it there is room for."""
    foreign: npt.NDArray[np.bool_]
    """Whether it is a softirq of the kind that serves, in which no packet left."""

    def on_clock(self, shown: Callable[[Column], Column]) -> Events:
        """The same at times of another clock, which `shown` gives for those of this one."""
        records = self.records.copy()
        records["start"] = shown(records["start"].astype(np.int64))
        return replace(self, records=records, end=shown(self.end), stolen=shown(self.stolen))

    def near(self, windows: Sequence[Window]) -> Events:
        """Those that overlap one of some windows, which ascend and do not overlap."""
        starts, ends = (np.array(side, np.int64) for side in zip(*windows, strict=True))
        begun = self.records["start"].astype(np.int64)
        first = np.minimum(begun, np.where(self.stolen_ns > 0, self.stolen, begun))
        # The last window that begins before the record ends is the only one to look at.
        at = np.searchsorted(starts, self.end, side="right") - 1
        kept = (at >= 0) & (first <= ends[np.maximum(at, 0)])
        return Events(self.records[kept], self.end[kept], self.number[kept], self.stolen[kept],
                      self.stolen_ns[kept], self.foreign[kept])  # fmt: skip


def merged(windows: Iterable[Window]) -> list[Window]:
    """Windows that cover the same time, ascend, and do not touch."""
    found: list[Window] = []
    for start, end in sorted(windows):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def read_events(trace: Trace, leaving: Sequence[Path] = ()) -> Events:
    """All records of a trace by the clock of the stamps, without what stands behind damage.

    `leaving` are the stamps behind what serves, by which softirqs for packets of others are told.
    Those of another machine tell nothing of that. Raises `InputError` when the file cannot be read.
    """
    records = trace.whole
    start = records["start"].astype(np.int64)
    accumulated = records["flags"] & ACCUMULATED != 0
    dur = records["dur"].astype(np.int64)
    window = (records["aux"] >> np.uint64(32)).astype(np.int64)
    end = start + np.where(accumulated, np.maximum(window, dur), dur)
    number = np.where(accumulated, (records["aux"] & np.uint64(_LONGEST)).astype(np.int64), 0)
    base = np.isin(records["kind"], (TASK, IDLE)) & ~accumulated
    stolen, stolen_ns = start.copy(), np.zeros(start.size, np.int64)
    for cpu in np.unique(records["cpu"]):
        mine = records["cpu"] == cpu
        places = np.flatnonzero(mine & base)
        # One that lasted longer than a record can tell ended where the next one began.
        after = np.append(start[places[1:]], trace.record.ended_ns)
        long = records["dur"][places] == _LONGEST
        end[places[long]] = np.maximum(end[places[long]], after[long])
        places = np.flatnonzero(mine & (records["kind"] != LOST))
        if places.size:
            before = np.maximum.accumulate(np.append(start[places[:1]], end[places[:-1]]))
            taken = np.minimum(records["steal"][places], np.maximum(end[places] - before, 0))
            stolen[places] = np.maximum(start[places], before + taken) - taken
            stolen_ns[places] = taken
    clock = trace.clock
    foreign = _foreign(trace, records, start, end, leaving if clock is None else ())
    found = Events(records, end, number, stolen, stolen_ns, foreign)
    return found if clock is None else found.on_clock(clock.stamps_ns)


def _foreign(
    trace: Trace,
    records: npt.NDArray[Any],
    start: Column,
    end: Column,
    leaving: Sequence[Path],
) -> npt.NDArray[np.bool_]:
    nothing = np.zeros(records.size, bool)
    files = [path for path in leaving if path.is_file()]
    captures = any(path.suffix != ".stamps" for path in files)
    if not trace.served.by_softirq or not files or captures:
        return nothing
    times = [read_stamps(path)["time_ns"].astype(np.int64) for path in files]
    left = np.sort(np.concatenate(times))
    serving = (records["kind"] == SOFTIRQ) & (records["id"] == trace.served.vector)
    meanwhile = np.searchsorted(left, end, "right") - np.searchsorted(left, start, "left")
    elsewhere = ~np.isin(records["cpu"], trace.served.softirq_cpus)
    shared = np.isin(records["cpu"], trace.served.thread_cpus)
    found: npt.NDArray[np.bool_] = serving & (elsewhere | (~shared & (meanwhile == 0)))
    return found


Chosen: TypeAlias = npt.NDArray[np.bool_]
WIDE = 0.2
"""A packet is joined with another clock where what is open of that is at most this part of its
excess."""


class Shown(Protocol):
    """A clock by that of the stamps."""

    def off_ns(self, times: Times) -> Times:
        """How far it may be off at times of the stamps, in ns."""
        ...


def too_coarse(clock: Shown, egress_ns: Column, excess_ns: Column) -> Chosen:
    """Which packets it is not known well enough for, by when they left and how late they were."""
    wide: Chosen = 2 * clock.off_ns(egress_ns) > WIDE * excess_ns
    return wide


@dataclass(frozen=True)
class Spans:
    """Spans of time in ns that ascend and do not overlap."""

    start: Column
    end: Column

    @classmethod
    def merged(cls, start: Column, end: Column) -> Spans:
        """The same time as spans in any order, which may overlap; those without length are gone."""
        there = end > start
        order = np.argsort(start[there], kind="stable")
        starts, reach = start[there][order], np.maximum.accumulate(end[there][order])
        first = np.append(True, starts[1:] > reach[:-1]) if starts.size else np.zeros(0, bool)
        last = np.append(np.flatnonzero(first)[1:] - 1, starts.size - 1)
        return cls(starts[first], reach[last] if starts.size else reach)

    def within(self, first_ns: int, last_ns: int) -> Spans:
        """The parts of them between two times."""
        start, end = np.maximum(self.start, first_ns), np.minimum(self.end, last_ns)
        there = end > start
        return Spans(start[there], end[there])

    def has(self, times: Column) -> Chosen:
        """Whether each time lies in one of them, their ends left out."""
        place = np.searchsorted(self.start, times, "right") - 1
        found: Chosen = (place >= 0) & (times < np.append(self.end, 0)[place])
        return found

    def before(self, times: Column) -> Column:
        """How much of them lies before each time, in ns."""
        sums = np.append(0, np.cumsum(self.end - self.start))
        begun = np.searchsorted(self.start, times, side="right")
        over = np.maximum(0, np.append(self.end, 0)[begun - 1] - times) * (begun > 0)
        found: Column = sums[begun] - over
        return found

    def without(self, others: Spans) -> Spans:
        """What of this time is in none of some other spans."""
        edges = np.unique(np.concatenate([self.start, self.end, others.start, others.end]))
        start, end = edges[:-1], edges[1:]
        there = self.has(start) & ~others.has(start)
        return Spans.merged(start[there], end[there])

    @property
    def total_ns(self) -> int:
        """How much time they are."""
        return int((self.end - self.start).sum())


@dataclass(frozen=True)
class _Spans:
    """Stretches of one core, by their starts."""

    start: Column
    end: Column
    """The latest end of all up to this one."""
    id: Column

    @classmethod
    def of(cls, records: npt.NDArray[np.void]) -> _Spans:
        start = records["start"].astype(np.int64)
        dur = records["dur"].astype(np.int64)
        window = (records["aux"] >> np.uint64(32)).astype(np.int64)
        gathered = records["flags"] & ACCUMULATED != 0
        end = start + np.where(gathered, np.maximum(window, dur), dur)
        order = np.argsort(start, kind="stable")
        return cls(start[order], np.maximum.accumulate(end[order]), records["id"][order])

    def at(self, times: Column) -> Column:
        """The place of the stretch that holds each time, -1 where none does."""
        place = np.searchsorted(self.start, times, "right") - 1
        return np.where((place >= 0) & (self.end[np.maximum(place, 0)] >= times), place, -1)


@dataclass(frozen=True)
class Watched:
    """When the cores of a trace were seen to serve. Reads the trace when it is first asked."""

    trace: Trace

    def unseen(self, cpu: Column, left_ns: Column) -> Chosen:
        """Whether each packet left its core in no softirq that the trace knows of."""
        found = np.zeros(cpu.size, bool)
        if self.trace.clock is not None:
            return found
        for core, (softirqs, _) in self._cores.items():
            mine = cpu == core
            found[mine] = softirqs.at(left_ns[mine]) < 0
        return found

    def untraced(self, cpu: Column, ingress_ns: Column, egress_ns: Column) -> Chosen:
        """Whether each packet passed its core, at least in part, while nothing was traced there."""
        found = np.zeros(cpu.size, bool)
        if self.trace.clock is not None:
            return found
        records = self.trace.whole
        records = records[records["kind"] == LOST]
        for core in np.unique(records["cpu"]):
            gaps, mine = _Spans.of(records[records["cpu"] == core]), cpu == core
            last = np.searchsorted(gaps.start, egress_ns[mine]) - 1
            found[mine] = (last >= 0) & (gaps.end[np.maximum(last, 0)] > ingress_ns[mine])
        return found

    def tasks(self, cpu: Column, left_ns: Column) -> list[str]:
        """The names of the tasks that had the core when packets left it, those of most first."""
        pids: list[int] = []
        for core, (_, tasks) in self._cores.items():
            place = tasks.at(left_ns[cpu == core])
            pids += tasks.id[place[place >= 0]].tolist()
        values, counts = np.unique(np.array(pids, np.int64), return_counts=True)
        order = values[np.argsort(-counts, kind="stable")].tolist()
        return list(dict.fromkeys(map(self.trace.names.thread, order)))

    @cached_property
    def _cores(self) -> Mapping[int, tuple[_Spans, _Spans]]:
        """Softirqs, and tasks, of each core on which softirqs alone serve."""
        served = self.trace.served
        records = self.trace.whole
        # Sums of others span times in which there was none of them.
        alone = (records["flags"] & ACCUMULATED == 0) | (records["id"] == served.vector)
        softirq = (records["kind"] == SOFTIRQ) & alone
        task = records["kind"] == TASK
        found = {}
        for cpu in set(served.softirq_cpus) - set(served.thread_cpus):
            mine = records["cpu"] == cpu
            found[cpu] = (_Spans.of(records[mine & softirq]), _Spans.of(records[mine & task]))
        return found
