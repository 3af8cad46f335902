"""The records of a trace as columns: what stood on which core, and until when."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tailtap._core import TRACE_KINDS
from tailtap.analysis.causes.trace import Trace
from tailtap.analysis.evaluation.values import Column
from tailtap.base.errors import NotRead, OfAnotherKind
from tailtap.base.foreign import map_records
from tailtap.records.stamps import read_stamps

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

    def words(self, names: Mapping[int, str]) -> str:
        """As people read it, with the `names` of threads."""
        return names.get(self.thread) or f"CPU {self.cpu}"


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
    records = whole(trace.events)
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
        after = np.append(start[places[1:]], trace.ended_ns)
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


def events_in(path: Path) -> npt.NDArray[Any]:
    """All records of a trace, which stay on the disk. Raises `InputError`."""
    try:
        found = map_records(path, MAGIC, len(MAGIC), RECORD)
    except (OSError, ValueError) as error:
        raise NotRead(error, "").at(path) from error
    if found is None:
        raise OfAnotherKind("trace", "give a run that was measured with `trace: thin`").at(path)
    return found


def whole(path: Path) -> npt.NDArray[Any]:
    """The records of a file up to the first that no tracer wrote. Raises `InputError`."""
    records = np.array(events_in(path))
    bad = np.flatnonzero((records["kind"] == 0) | (records["start"] > _LATEST_NS))
    return records[: bad[0]] if bad.size else records
