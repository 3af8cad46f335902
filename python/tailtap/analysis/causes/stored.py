"""Why packets of a run were late, as `tailtap explain` stored it or as it is found out now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailtap.analysis.causes.explain import explain
from tailtap.analysis.causes.guest import Guest, guest_of
from tailtap.analysis.causes.lanes import Slice, slices
from tailtap.analysis.causes.late import leaving
from tailtap.analysis.causes.record import record, tables
from tailtap.analysis.causes.taxonomy import NAMES
from tailtap.analysis.causes.trace import Events, Trace, Window, load, read_events
from tailtap.analysis.clocks.host import EGRESS
from tailtap.analysis.evaluation.tables import column as integers
from tailtap.analysis.evaluation.tables import read as read_table
from tailtap.analysis.evaluation.values import Column
from tailtap.analysis.runs.run import Run
from tailtap.base.errors import InputError
from tailtap.records.causes import CausesRecord
from tailtap.records.record import Notice, read_if_there

TABLES = ("causes-late", "causes-parts", "causes-stalls")


@dataclass(frozen=True)
class Causes:
    """What docs/reference/files.md says of `causes.json` and its tables."""

    run: Run
    trace: Trace
    record: CausesRecord
    late: pa.Table
    parts: pa.Table
    stalls: pa.Table

    @cached_property
    def events(self) -> Events:
        """The records of the trace. Raises `InputError` when they cannot be read."""
        return read_events(self.trace, leaving(self.run, self.trace.events.parent))

    @cached_property
    def guest(self) -> Guest | None:
        """The guest whose trace lies below this one; None where there is none, or nobody knows."""
        return guest_of(self.trace.events.parent, self.trace)[0]

    @cached_property
    def guest_events(self) -> Events | None:
        """The records of the guest's trace by the clock of the host. Raises `InputError`."""
        if self.guest is None:
            return None
        found = read_events(self.guest.trace, [self.trace.events.parent / EGRESS])
        return found.on_clock(self.guest.clock.host_ns)

    def slices(self, windows: Sequence[Window]) -> list[Slice]:
        """What stood on the cores in some windows, and then what stood on those of the guest.

        `windows` ascend and do not overlap. Raises `InputError` when a trace cannot be read.
        """
        found = slices(self.events.near(windows), self.trace)
        if self.guest is not None and self.guest_events is not None:
            theirs = slices(self.guest_events.near(windows), self.guest.trace)
            found += [one._replace(guest=True) for one in theirs]
        return found

    @property
    def packets(self) -> int:
        """How many packets the run's latencies are of."""
        return self.run.stored.counts.matched

    def column(self, table: str, name: str) -> Column:
        """A column of whole numbers of one of the tables."""
        return integers(getattr(self, table), name)


def causes_of(run: Run) -> Causes:
    """Why packets of a run were late; found out now where nothing is stored, or of old captures.

    Nothing is written. Raises `InputError` as `load` and `explain` do.
    """
    trace = load(run)
    damage: list[Notice] = []
    try:
        stored = read_stored(trace.events.parent, run.stored.percentile(0.5).value)
    except InputError as error:
        stored, damage = None, [Notice("file-damaged", f"{error}; here it was found out anew")]
    if stored is not None:
        return Causes(run, trace, stored[0], *stored[1])
    found = explain(run)
    made, told = tables(found), record(found)
    told.warnings = [*told.warnings, *damage]
    return Causes(run, trace, told, *(made[name] for name in TABLES))


def read_stored(folder: Path, median_ns: int) -> tuple[CausesRecord, list[pa.Table]] | None:
    """`causes.json` of a run folder and its `TABLES`.

    None where there are none, and unless they say in which segment each packet was late, and are of
    a run with this median: it was not evaluated anew since. Raises `InputError` when they are there
    and cannot be read.
    """
    try:
        stored = read_if_there(folder / "causes.json", CausesRecord)
        if stored is None:
            return None
        found = [read_table(folder, name, stored.made) for name in TABLES]
    except (InputError, OSError, ValueError, pa.ArrowException) as error:
        raise InputError(
            f"its stored causes cannot be read ({error}): run tailtap explain {folder} again"
        ).at(folder) from error
    late, causes = stored.late, {row.cause for row in stored.causes}
    packet = integers(found[1], "packet")
    current = (
        late.median_ns == median_ns
        and late.packets == found[0].num_rows
        and causes | set(found[0].column("blamed").to_pylist()) <= NAMES
        and not np.any((packet < 0) | (packet >= late.packets))
    )
    return (stored, found) if current else None


UNEXPLAINED, OWN = "unexplained", "own-work"
FEWEST = 10
"""A percentile with fewer packets above it is not supported."""
POINTS = 80


@dataclass(frozen=True)
class Shares:
    """Shares of the delay of the slowest packets, by cause; those of a row add up to one."""

    above: Column
    """How many packets are above each percentile, the most first."""
    p: npt.NDArray[np.float64]
    """The percentiles, between 0 and 1."""
    by_cause: dict[str, npt.NDArray[np.float64]]
    """For each cause its share at each percentile; those with most delay come first."""


def delays(causes: Causes) -> tuple[tuple[str, ...], npt.NDArray[np.int64]]:
    """The excess of each late packet by cause, in ns: names, and packets × causes.

    What a packet behind a stall, or in a queue, waits while its core serves is its cause's. Causes
    by exclusion count as the others do, as in the tables. A part of what is only present, and what
    no part covers, is unexplained. Rows add up to the excess.
    """
    blamed = causes.late["blamed"].to_pylist()
    state = causes.late["state"].to_pylist()
    excess = causes.column("late", "excess_ns")
    claimed = {(row.cause, row.detail) for row in causes.record.causes if row.claim != "present"}
    names: dict[str, int] = {UNEXPLAINED: 0}
    cells = np.zeros((excess.size, 1), np.int64)
    packets, ns = (causes.column("parts", name) for name in ("packet", "ns"))
    parts = zip(causes.parts["cause"].to_pylist(), causes.parts["detail"].to_pylist(), strict=True)
    places = np.zeros(ns.size, np.int64)
    for at, (packet, part) in enumerate(zip(packets.tolist(), parts, strict=True)):
        cause = part[0] if part in claimed else UNEXPLAINED
        if part[0] == OWN:
            cause = OWN if state[packet] == "direct" else blamed[packet]
            if cause == "mixed" or blamed[packet] == UNEXPLAINED:
                cause = UNEXPLAINED
        places[at] = names.setdefault(cause, len(names))
    cells = np.zeros((excess.size, len(names)), np.int64)
    np.add.at(cells, (packets, places), ns)
    cells[:, 0] += excess - cells.sum(axis=1)
    return tuple(names), cells


def shares(causes: Causes) -> Shares:
    """The shares of a run's causes, from its threshold to the highest supported percentile."""
    names, cells = delays(causes)
    order = np.argsort(-causes.column("late", "latency_ns"), kind="stable")
    sums = np.cumsum(cells[order], axis=0)
    late = order.size
    above = np.unique(np.geomspace(min(FEWEST, late), late, POINTS).round().astype(np.int64))[::-1]
    rows = sums[above - 1] / np.maximum(1, sums[above - 1].sum(axis=1, keepdims=True))
    largest = sorted(range(len(names)), key=lambda at: (names[at] == UNEXPLAINED, -sums[-1, at]))
    found = {names[at]: rows[:, at] for at in largest if rows[:, at].any()}
    return Shares(above, 1 - above / causes.packets, found)
