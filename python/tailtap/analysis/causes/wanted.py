"""When the threads that serve wanted their core and had it not: what was had by others was taken.

A trace tells of each serving thread how long it was woken, or had lost the CPU while it could run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tailtap.analysis.causes.events import RUNNABLE, WAKEUP, events_in
from tailtap.analysis.causes.joined import Joined
from tailtap.analysis.causes.taxonomy import WHENEVER_ASLEEP, is_of
from tailtap.analysis.causes.trace import Trace
from tailtap.analysis.evaluation.values import Column

CHUNK = 1 << 20
"""Records that are looked at together: memory does not grow with the trace."""
ENOUGH = 0.5
"""A row held the core where its server wanted it for this share of the row's stalls."""
WAITED_FOR_QUOTA = 1
_ACCUMULATED = 1


def held_from_threads(joined: Joined, trace: Trace) -> frozenset[int]:
    """The rows of tasks and sleeps that kept the core from a thread that could run."""
    rows = joined.rows.names
    asked = [
        row
        for row in np.unique(joined.stall_row).tolist()
        if rows[row].cause in WHENEVER_ASLEEP
        and not rows[row].is_untold
        and not is_of("guest", rows[row])
    ]
    if not asked or not trace.served.thread_cpus:
        return frozenset()
    chosen = np.isin(joined.stall_row, asked)
    wanted = np.zeros(joined.stall_row.size, np.int64)
    length = joined.stall_end - joined.stall_start
    times = list(_times(trace))
    if not times:
        return frozenset()
    cpu, start, end = (np.concatenate(columns) for columns in zip(*times, strict=True))
    if trace.clock is not None:
        start, end = trace.clock.stamps_ns(start), trace.clock.stamps_ns(end)
    for core in np.unique(joined.stall_cpu[chosen]).tolist():
        mine = chosen & (joined.stall_cpu == core)
        starts, ends = _merged(start[cpu == core], end[cpu == core])
        if starts.size:
            wanted[mine] = _before(starts, ends, joined.stall_end[mine]) - _before(
                starts, ends, joined.stall_start[mine]
            )
    return frozenset(
        row
        for row in asked
        if wanted[joined.stall_row == row].sum() >= ENOUGH * length[joined.stall_row == row].sum()
    )


def _times(trace: Trace) -> Iterator[tuple[Column, Column, Column]]:
    """CPU, begin and end of each time in which a serving thread wanted a CPU, by the trace's
    clock; up to the first record that no tracer wrote.
    """
    records = events_in(trace.events)
    for at in range(0, records.size, CHUNK):
        chunk: npt.NDArray[Any] = records[at : at + CHUNK]
        kind = chunk["kind"]
        bad = np.flatnonzero(kind == 0)
        if bad.size:
            chunk, kind = chunk[: bad[0]], kind[: bad[0]]
        waits = (kind == WAKEUP) | ((kind == RUNNABLE) & (chunk["aux"] != WAITED_FOR_QUOTA))
        found = chunk[waits & (chunk["flags"] & _ACCUMULATED == 0)]
        start = found["start"].astype(np.int64)
        yield found["cpu"].astype(np.int64), start, start + found["dur"].astype(np.int64)
        if bad.size:
            return


def _merged(starts: Column, ends: Column) -> tuple[Column, Column]:
    """The same time in pieces that ascend and do not overlap."""
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(ends[order])
    if not starts.size:
        return starts, reach
    first = np.append(True, starts[1:] > reach[:-1])
    return starts[first], reach[np.append(np.flatnonzero(first)[1:] - 1, starts.size - 1)]


def _before(starts: Column, ends: Column, times: Column) -> Column:
    """How much of the pieces lies before each time, in ns."""
    sums = np.append(0, np.cumsum(ends - starts))
    begun = np.searchsorted(starts, times, side="right")
    over = np.maximum(0, ends[np.maximum(begun - 1, 0)] - times) * (begun > 0)
    found: Column = sums[begun] - over
    return found
