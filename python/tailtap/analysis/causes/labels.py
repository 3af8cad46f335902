"""The cause of each late packet, and the table of causes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from tailtap.analysis.causes.claims import Claim
from tailtap.analysis.causes.joined import BEHIND, DIRECT, OWN, QUEUED, Joined
from tailtap.analysis.causes.taxonomy import NOTHING, SERVING, Named, Served, holds
from tailtap.analysis.evaluation.values import Column

Basis = Literal["core", "exclusion", "chance", "none"]
"""Why a row is a cause: it had the core, all else is excluded, or chance is; or it is none."""

MIXED = Named("mixed", "")


@dataclass(frozen=True)
class Row:
    """A row of the table of causes."""

    name: Named
    packets: int
    behind: int
    """Of these, how many were behind its stalls."""
    stalls: int
    delay_ns: int
    """What it added to late packets."""
    worst_ns: int
    """The largest latency of its packets."""
    claim: Claim | None
    """None for what follows by exclusion, and for what had too little time to be tested."""
    held: bool = False
    """Whether it had the core while packets waited for it, which is a fact."""

    @property
    def basis(self) -> Basis:
        """What makes it a cause."""
        if self.held:
            return "core"
        if self.name.by_exclusion:
            return "exclusion"
        return "chance" if self.claim and self.claim.passed else "none"

    @property
    def is_cause(self) -> bool:
        """Whether it is more than present."""
        return self.basis != "none"


@dataclass(frozen=True)
class Labels:
    """Each late packet's cause, as a place in `names`, and the table of causes."""

    names: tuple[Named, ...]
    of_packets: Column
    blamed: Column
    """The same, with the cause of its stall for a packet behind one."""
    of_stalls: Column
    rows: tuple[Row, ...]
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
    rows = list(joined.rows.names)
    own_names = [Named("gap" if one.by == "poll" else "own-work", "") for one in servers]
    extra = [Named("behind", ""), MIXED, *own_names]
    names = (*rows, *(name for name in dict.fromkeys(extra) if name not in rows))
    behind, mixed, *owns = (names.index(name) for name in extra)
    own = np.array(owns)[joined.segment]
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
    own_ns = np.where(unexplained, 0, _sums(joined, joined.part_row == SERVING))
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
    causes = {
        name: place
        for place, name in enumerate(dict.fromkeys(named.cause for named in joined.rows.names))
    }
    cause_of = np.array([causes[named.cause] for named in joined.rows.names])
    counted = joined.part_row != SERVING
    packet, row, ns = (
        column[counted] for column in (joined.of_packets(), joined.part_row, joined.part_ns)
    )
    size = joined.state.size
    sums = np.zeros(size * len(causes), np.int64)
    np.add.at(sums, packet * len(causes) + cause_of[row], ns)
    by_cause = sums.reshape(size, len(causes))
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
) -> tuple[Row, ...]:
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
    found = [
        Row(names[at], int(packets[at]), int(waited[at]), int(stalls[at]), int(delay[at]),
            int(worst[at]), claims.get(at), held[at])
        for at in range(size)
        if at not in (NOTHING, SERVING) and packets[at]
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda row: (not row.is_cause, -row.packets, -row.delay_ns)))


def _unserved(joined: Joined) -> Column:
    """The excess of each packet without the time in which its core served, in ns."""
    return joined.late.excess_ns - _sums(joined, joined.part_row == SERVING)


def _sums(joined: Joined, counted: npt.NDArray[np.bool_]) -> Column:
    """For each packet, the sum of those of its parts that are counted, in ns."""
    sums = np.zeros(joined.state.size, np.int64)
    np.add.at(sums, joined.of_packets()[counted], joined.part_ns[counted])
    return sums
