"""The cause of each late packet, the table of causes, and the tail without the time of some.

The latter is an estimate, as nothing may take its place.

When the threads that serve wanted their core and had it not: what was had by others was taken. A
trace tells of each serving thread how long it was woken, or had lost the CPU while it could run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tailtap.analysis.causes.claims import Claim
from tailtap.analysis.causes.joined import BEHIND, DIRECT, OWN, QUEUED, Joined
from tailtap.analysis.causes.taxonomy import (
    NOTHING,
    SERVING,
    WHENEVER_ASLEEP,
    Named,
    Served,
    holds,
    is_of,
)
from tailtap.analysis.causes.trace import RUNNABLE, WAKEUP, Spans, Trace
from tailtap.analysis.evaluation.values import Column
from tailtap.analysis.runs.run import Run
from tailtap.records.causes import CauseRow, ClaimKind, Without

Basis = Literal["core", "exclusion", "chance", "none"]
"""Why a row is a cause: it had the core, all else is excluded, or chance is; or it is none."""
MIXED = Named("mixed", "")
GAP_NS = 10_000
"""A loop that polls was away for so long where it took this and a usual packet's latency more than
usual: what hwlat takes for an SMI (the kernel's Documentation/trace/hwlat_detector.rst)."""


@dataclass(frozen=True)
class Labels:
    """Each late packet's cause, as a place in `names`, and the table of causes."""

    names: tuple[Named, ...]
    of_packets: Column
    blamed: Column
    """The same, with the cause of its stall for a packet behind one."""
    of_stalls: Column
    rows: tuple[CauseRow, ...]
    """Causes first, with most packets first; then what is only present."""
    unexplained_packets: int
    unexplained_ns: int

    def name(self, packet: int) -> Named:
        """The cause of a packet."""
        return self.names[int(self.of_packets[packet])]

    def blame(self, packet: int) -> Named:
        """The cause of a packet or, where it was behind a stall, of that stall."""
        return self.names[int(self.blamed[packet])]


def label(
    joined: Joined,
    claims: Mapping[int, Claim],
    servers: Sequence[Served],
    *,
    guest: bool = False,
    taken: Collection[int] = (),
) -> Labels:
    """The labels of a join's packets: rows that had the core are causes, others as `claims` say.

    `servers` are those of its segments, or of the `guest` whose CPUs threads of this machine are.
    Rows that are `taken` had the core while a serving thread wanted it.
    """
    rows = list(joined.laid.rows.names)
    extra = [Named("behind", ""), MIXED, Named("own-work", ""), Named("gap", "")]
    names = (*rows, *(name for name in extra if name not in rows))
    behind, mixed, own_work, gap = (names.index(name) for name in extra)
    served_ns = _sums(joined, joined.part_row == SERVING)
    polls = np.array([one.by == "poll" for one in servers])[joined.segment]
    away = polls & (served_ns >= GAP_NS + joined.late.median_ns)
    own = np.where(away, gap, own_work)
    held = [row in taken or holds(name, servers, guest=guest) for row, name in enumerate(names)]
    passed = np.array([name.is_untold for name in names]) | np.array(held)
    passed[[row for row, claim in claims.items() if claim.passed]] = True

    top = _top(joined)
    good = np.where(top >= 0, passed[np.maximum(top, 0)], True)
    state = joined.state
    explained = _sums(joined, passed[joined.part_row])
    several = np.where(2 * explained >= _unserved(joined), mixed, NOTHING)
    direct = np.where(top < 0, several, np.where(good, top, NOTHING))
    stall_row = np.append(joined.stall_row, NOTHING)  # at UNKNOWN, the last
    of_stall = np.where(passed[stall_row[joined.stall]], stall_row[joined.stall], NOTHING)
    choices = {
        DIRECT: direct,
        BEHIND: np.where(of_stall == NOTHING, NOTHING, behind),
        QUEUED: np.full(state.size, behind),
        OWN: own,
    }
    labels = np.select([state == which for which in choices], list(choices.values()), NOTHING)
    blamed = np.where((state == BEHIND) & (labels != NOTHING), of_stall, labels)
    places = [np.where(labels == mixed, mixed, np.maximum(top, NOTHING)), stall_row[joined.stall],
              own, np.full(state.size, behind)]  # fmt: skip
    row = np.select([state == which for which in choices], places, NOTHING)
    table = _table(joined, names, row, claims, held)
    unexplained = blamed == NOTHING
    # While its core serves, a packet waits for those before it, or is served.
    own_ns = np.where(unexplained, 0, served_ns)
    left = np.maximum(0, joined.late.excess_ns - explained - own_ns)
    return Labels(
        names,
        labels,
        blamed,
        joined.stall_row,
        table,
        int(unexplained.sum()),
        int(left.sum()),
    )


def _top(joined: Joined) -> Column:
    """The row that stands for each packet: the largest of the cause with half of what it waited.

    Below zero where no cause has so much. The server's own row is no cause: what a packet waits
    while its core serves is the queue that the cause has left.
    """
    cause_of = np.array(joined.laid.rows.causes)
    causes = int(cause_of.max()) + 1
    counted = joined.part_row != SERVING
    packet, row, ns = (
        column[counted] for column in (joined.of_packets(), joined.part_row, joined.part_ns)
    )
    size = joined.state.size
    sums = np.zeros(size * causes, np.int64)
    np.add.at(sums, packet * causes + cause_of[row], ns)
    by_cause = sums.reshape(size, causes)
    best = by_cause.argmax(axis=1)
    enough = 2 * by_cause[np.arange(size), best] >= _unserved(joined)
    top = np.full(size, -1, np.int64)
    largest = np.zeros(size, np.int64)
    of_best = cause_of[row] == best[packet]
    for one, candidate, length in zip(
        packet[of_best].tolist(), row[of_best].tolist(), ns[of_best].tolist(), strict=True
    ):
        if length > largest[one]:
            largest[one], top[one] = length, candidate
    return np.where(enough, top, -1)


def _table(
    joined: Joined,
    names: tuple[Named, ...],
    row: Column,
    claims: Mapping[int, Claim],
    held: Sequence[bool],
) -> tuple[CauseRow, ...]:
    """Every row that some late packet has as its own or behind its stall, claimed or not."""
    state, size = joined.state, len(names)
    behind = state == BEHIND
    packets = np.bincount(row, minlength=size)
    waited = np.bincount(row[behind], minlength=size)
    stalls = np.bincount(joined.stall_row, minlength=size)
    worst = np.zeros(size, np.int64)
    np.maximum.at(worst, row, joined.late.packets.latency_ns)
    delay = np.zeros(size, np.int64)
    counted = joined.part_row != SERVING
    np.add.at(delay, joined.part_row[counted], joined.part_ns[counted])
    # What such a packet waits while its core serves is the stall's, or the queue's.
    whole = behind | (state == OWN) | (state == QUEUED)
    np.add.at(delay, row[whole], _sums(joined, ~counted)[whole])
    found = []
    for at in range(size):
        if at in (NOTHING, SERVING) or not packets[at]:
            continue
        claim, name = claims.get(at), names[at]
        basis = _basis(name, claim, held=held[at])
        found.append(
            CauseRow(
                cause=name.cause,
                detail=name.detail,
                claim=_claim(name, claim, basis),
                packets=int(packets[at]),
                behind=int(waited[at]),
                stalls=int(stalls[at]),
                delay_ns=int(delay[at]),
                worst_ns=int(worst[at]),
                share=int(packets[at]) / state.size,
                beyond_chance=claim.beyond_chance if claim else None,
                p_value=claim.p if claim else None,
                shifts=claim.shifts if claim else None,
                basis=basis,
                without=None,
                knobs=[],
            )
        )
    return tuple(sorted(found, key=lambda row: (not row.is_cause, -row.packets, -row.delay_ns)))


def _basis(name: Named, claim: Claim | None, *, held: bool) -> Basis:
    """What makes it a cause. That it had the core while packets waited for it is a fact.

    There is no claim of what follows by exclusion, and of what had too little time to be tested.
    """
    if held:
        return "core"
    if name.by_exclusion:
        return "exclusion"
    return "chance" if claim and claim.passed else "none"


def _claim(name: Named, claim: Claim | None, basis: Basis) -> ClaimKind:
    if basis == "core" or (basis != "none" and claim is not None):
        return "cause"
    return "by-exclusion" if name.by_exclusion or name.cause == "mixed" else "present"


def _unserved(joined: Joined) -> Column:
    """The excess of each packet without the time in which its core served, in ns."""
    return joined.late.excess_ns - _sums(joined, joined.part_row == SERVING)


def _sums(joined: Joined, counted: npt.NDArray[np.bool_]) -> Column:
    """For each packet, the sum of those of its parts that are counted, in ns."""
    sums = np.zeros(joined.state.size, np.int64)
    np.add.at(sums, joined.of_packets()[counted], joined.part_ns[counted])
    return sums


CHUNK = 1 << 20
"""Records that are looked at together: memory does not grow with the trace."""
ENOUGH = 0.5
"""A row held the core where its server wanted it for this share of the row's stalls."""
WAITED_FOR_QUOTA = 1
_ACCUMULATED = 1


def held_from_threads(joined: Joined, trace: Trace) -> frozenset[int]:
    """The rows of tasks and sleeps that kept the core from a thread that could run."""
    rows = joined.laid.rows.names
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
        waiting = Spans.merged(start[cpu == core], end[cpu == core])
        until, since = joined.stall_end[mine], joined.stall_start[mine]
        wanted[mine] = waiting.before(until) - waiting.before(since)
    return frozenset(
        row
        for row in asked
        if wanted[joined.stall_row == row].sum() >= ENOUGH * length[joined.stall_row == row].sum()
    )


def _times(trace: Trace) -> Iterator[tuple[Column, Column, Column]]:
    """CPU, begin and end of each time in which a serving thread wanted a CPU, by the trace's
    clock; up to the first record that no tracer wrote.
    """
    records = trace.mapped
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


DEFAULT_P = 0.999


@dataclass(frozen=True)
class Removal:
    """Takes the time of causes out of the latencies of late packets, to the nanosecond."""

    run: Run
    joined: Joined
    labels: Labels
    p: float

    def without(self, causes: Collection[Named]) -> Without:
        """The order statistics again, with each packet's latency less these causes' parts.

        What a packet behind a stall, or in a queue, waited while its core served is its cause's.
        Packets that are not known one by one may be as slow as the fastest that are.
        """
        late, stored = self.joined.late, self.run.stored
        latency = late.packets.latency_ns - self._parts(causes)
        falling = np.sort(latency)[::-1]
        plain = stored.percentile(self.p)
        value = int(falling[plain.above]) if plain.above < falling.size else 0
        least, measured = late.threshold_ns, plain.value
        return Without(
            p=self.p,
            measured_ns=measured,
            percentile_ns=min(measured, max(value, least)),
            measured_worst_ns=stored.max,
            worst_ns=max(int(falling[0]), least),
            least_ns=least,
        )

    def _parts(self, causes: Collection[Named]) -> Column:
        """What these causes have of each late packet, in ns."""
        joined, labels = self.joined, self.labels
        rows = {row for row, name in enumerate(labels.names) if name in causes}
        counted = np.isin(joined.part_row, sorted(rows))
        served = joined.part_row == SERVING
        waited = np.isin(joined.state, (BEHIND, OWN, QUEUED)) & np.isin(labels.blamed, sorted(rows))
        counted |= served & waited[joined.of_packets()]
        return _sums(joined, counted)
