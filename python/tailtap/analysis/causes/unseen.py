"""Times in which packets left a core, and its trace saw nothing that served them.

Where softirqs alone serve, a packet leaves during one of them. A kernel that does not run the
tracer's programs for a while leaves no record of that. Of such a time only the task that had the
core is known, and not whether the core had been told of packets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from tailtap.analysis.causes import events as kinds
from tailtap.analysis.causes.trace import Trace
from tailtap.analysis.clocks.alignment import Times
from tailtap.analysis.evaluation.values import Column

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
        gathered = records["flags"] & kinds.ACCUMULATED != 0
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
        records = kinds.whole(self.trace.events)
        records = records[records["kind"] == kinds.LOST]
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
        names = self.trace.names.pids
        order = values[np.argsort(-counts, kind="stable")].tolist()
        return list(dict.fromkeys(names.get(pid) or f"pid {pid}" for pid in order))

    @cached_property
    def _cores(self) -> Mapping[int, tuple[_Spans, _Spans]]:
        """Softirqs, and tasks, of each core on which softirqs alone serve."""
        served = self.trace.served
        records = kinds.whole(self.trace.events)
        # Sums of others span times in which there was none of them.
        alone = (records["flags"] & kinds.ACCUMULATED == 0) | (records["id"] == served.vector)
        softirq = (records["kind"] == kinds.SOFTIRQ) & alone
        task = records["kind"] == kinds.TASK
        found = {}
        for cpu in set(served.softirq_cpus) - set(served.thread_cpus):
            mine = records["cpu"] == cpu
            found[cpu] = (_Spans.of(records[mine & softirq]), _Spans.of(records[mine & task]))
        return found
