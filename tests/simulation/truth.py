"""Who had the core while packets waited, as docs/explanation/causes.md names it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tests.simulation.device import CORE, Device
from tests.simulation.machine import AWAY, FOREVER, TASK, THREAD, Course, Integers, Times, split
from tests.simulation.records import (
    AWAY_NS,
    CONTEXT_TASK,
    DELAY_NS,
    LOST,
    Stays,
    ends,
    taken_before,
)
from tests.simulation.tracer import Told

Row = tuple[str, str]
RAISED_NS = 2_000
THROTTLED = "throttled", ""
NEVER: Times = (np.zeros(0, np.int64),) * 2
OF_GENERATOR = " on the generator's CPU 0"


@dataclass(frozen=True)
class Truth:
    """Who had the core, by row of the table of causes."""

    told: Told
    width_ns: int = 0
    """How well the clock of the trace is known by that of the stamps."""

    def meets(self, since: Integers, until: Integers, excess: Integers) -> Any:
        """Whether the trace may not tell of a moment of these times, or of these packets."""
        coarse = 0.2 * excess < 1.2 * self.width_ns
        near = self.width_ns
        return coarse | self.told.meets(since - near, until + near)

    @property
    def made(self) -> Device:
        return self.told.made

    @cached_property
    def own(self) -> Mapping[Row, Times]:
        """When the jobs of each row had it."""
        return rows_of(self.made.core)

    @cached_property
    def rows(self) -> Mapping[Row, Times]:
        """When each row had it: a server that may not run is not kept from it by what else runs."""
        core = self.made.core
        found = dict(self.own)
        idle, untold = core.server.idle.row, ("waiting", "its core was not notified")
        if core.server.by == "softirq":
            told = _told(core)
            for row in {one.row for one in core.table if one.kind == CONTEXT_TASK}:
                found[row], rest = split(found[row], told)
                found[untold] = _joined(found.get(untold), rest)
        if core.short:
            short = Stays(core).throttled(core)
            found[THROTTLED], rest = split(found[THROTTLED], short)
            found[idle] = _joined(found.get(idle), rest)
            for row in {one.row for one in core.table if one.level in (THREAD, TASK, AWAY)}:
                taken, found[row] = split(found[row], short)
                found[THROTTLED] = _joined(found[THROTTLED], taken)
        if self.told.senders:
            assert self.made.sender is not None
            own = self.made.sender.server.what.row
            for (cause, detail), held in rows_of(self.made.sender, AWAY_NS).items():
                if (cause, detail) == own:
                    continue
                row = cause, detail + OF_GENERATOR
                for waits in {idle, untold} & found.keys():
                    taken, found[waits] = split(found[waits], held)
                    found[row] = _joined(found.get(row), taken)
        return found

    def overlaps(self, since: Integers, until: Integers) -> dict[str, Integers]:
        """How much each cause had of these times."""
        found: dict[str, Integers] = {}
        for (named, _), times in self.rows.items():
            unnamed = named == "tlb-flush" and self.told.missing  # what was called is not known
            cause = "function-call-ipi" if unnamed else named
            ns = _during(times, since, until)
            found[cause] = found.get(cause, np.zeros_like(ns)) + ns
        return found

    def overlaps_of(self, row: Row, since: Integers, until: Integers) -> Integers:
        """How much one row had of these times."""
        return _during(self.rows.get(row, NEVER), since, until)

    def taken(self, cause: str, since: Integers, until: Integers) -> Integers:
        """How much of these times had what takes a core from whoever has it."""
        return _during(self.own.get((cause, ""), NEVER), since, until)

    def largest(self, since: Integers, until: Integers) -> Integers:
        """How much of these times the cause had that had most of each, but for the server."""
        had = self.overlaps(since, until)
        found: Integers = np.max([had[cause] for cause in had.keys() - {"serving"}], axis=0)
        return found

    def by_generator(self, since: Integers, until: Integers) -> Integers:
        """How much of these times what held the generator's core had."""
        found = np.zeros_like(since)
        for (_, detail), times in self.rows.items():
            if detail.endswith(OF_GENERATOR):
                found += _during(times, since, until)
        return found

    def hidden(self, number: Integers) -> Integers:
        """What others may have of these packets by the trace: of a core that serves or sends, it
        does not tell when the hypervisor took it, but for between which records it did, and of a
        gap nothing.
        """
        came, left = self.made.sent[number], self.made.left[number]
        told = np.zeros_like(came)
        for cpu in (CORE, *self.told.senders):
            records = self.told.records
            records = records[(records["cpu"] == cpu) & (records["kind"] != LOST)]
            until = np.maximum.accumulate(ends(records))
            since, stolen = np.append(until[:1], until[:-1]), records["steal"].astype(np.int64)
            taken = stolen > 0
            last = np.minimum(left[:, None] + self.width_ns, until[taken])
            within = last - np.maximum(came[:, None] - self.width_ns, since[taken])
            told += np.clip(within, 0, stolen[taken]).sum(axis=1)
        stolen = np.maximum(self.taken("steal", came, left), told)
        found: Integers = stolen + self.taken("gap", came, left)
        return found

    @cached_property
    def queued_since(self) -> Integers:
        """Since when the server had something to do without a break when each packet left."""
        came, left = self.made.sent, self.made.left
        first = np.append(True, came[1:] > np.maximum.accumulate(left - self.made.held)[:-1])
        since: Integers = came[np.maximum.accumulate(np.where(first, np.arange(came.size), 0))]
        return since


def _during(times: Times, since: Integers, until: Integers) -> Integers:
    """How much of stretches lies in each of these times."""
    return taken_before(*times, until) - taken_before(*times, since)


def rows_of(core: Course, least_ns: int = 0) -> dict[Row, Times]:
    """When each row had a core, by jobs that lasted so long."""
    job, start, end = (np.array(side, np.int64) for side in (core.job, core.start, core.end))
    first, last = np.zeros((2, len(core.what)), np.int64)
    first[job[::-1]], last[job] = start[::-1], end
    what, lasting = np.array(core.what)[job], (last - first)[job] >= least_ns
    rows = [one.row for one in core.table]
    found = {}
    for row in dict.fromkeys(rows):
        mine = lasting & np.isin(what, [at for at, one in enumerate(rows) if one == row])
        found[row] = start[mine], end[mine]
    return found


def _joined(one: Times | None, other: Times) -> Times:
    """Both, which do not overlap."""
    if one is None:
        return other
    start, end = (np.append(*sides) for sides in zip(one, other, strict=True))
    order = np.argsort(start)
    return start[order], end[order]


def _told(core: Course) -> Times:
    """When a core knows of packets that its softirq has not begun to serve."""
    begun = dict(zip(core.job[::-1], core.start[::-1], strict=True))
    least = {core.server.what: RAISED_NS, core.server.waking[0][0]: DELAY_NS}
    spans = [
        (core.ready[job], start)
        for job, start in sorted(begun.items())
        if start - core.ready[job] > least.get(core.table[core.what[job]], FOREVER)
    ]
    start, end = np.array(spans, np.int64).reshape(-1, 2).T
    reach = np.maximum.accumulate(np.append(0, end))[:-1]
    start = np.maximum(start, reach)
    return start[start < end], end[start < end]
