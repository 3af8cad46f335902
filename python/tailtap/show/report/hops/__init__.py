"""A line hop by hop, in the report: a table by node, the percentiles by node, the worst packets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from tailtap.analysis.evaluation.hops import UNKNOWN, Hops
from tailtap.analysis.evaluation.values import Column
from tailtap.analysis.runs.groups import DARK, LIGHT, Configuration, Member
from tailtap.records.evaluation import Percentile

PACKETS = 40
"""Worst packets that figures show, the worst first."""
NAMED = len(LIGHT[0])
"""Nodes with a colour of their own: those that took most of these packets' time."""
PERCENTILES = (0.5, 0.99, 0.999)


class Colour(NamedTuple):
    """A colour on white paper and on a dark page."""

    light: str
    dark: str


OTHERS: Final = Colour("#c3c8cc", "#59626a")
"""The colour of the other nodes."""


@dataclass(frozen=True)
class Line:
    """The run of a configuration whose hops are shown."""

    place: int
    """Its configuration, by its place among those that are drawn."""
    group: Configuration
    member: Member
    hops: Hops

    @property
    def nodes(self) -> list[str]:
        """The nodes, and their queues if known, in the order in which packets pass them."""
        return [row.name for row in self.hops.rows]

    @cached_property
    def shown(self) -> Column:
        """The worst packets of which every hop is known, by their places, at most `PACKETS`."""
        known = (self.hops.worst != UNKNOWN).all(axis=1)
        return np.flatnonzero(known)[:PACKETS]

    @cached_property
    def times(self) -> Column:
        """What these packets took for each hop, in ns: packets by hops."""
        return self.hops.worst[self.shown]

    @cached_property
    def colours(self) -> list[Colour]:
        """The colour of each node: those that took most of the shown packets' time have their own,
        in the order of the line."""
        spent = self.times.sum(axis=0)
        named = sorted(np.argsort(-spent, kind="stable")[:NAMED].tolist())
        own = {hop: Colour(LIGHT[0][i], DARK[0][i]) for i, hop in enumerate(named)}
        return [own.get(hop, OTHERS) for hop in range(len(spent))]

    @property
    def legend(self) -> list[tuple[str, Colour]]:
        """What the colours stand for."""
        named = [(node, colour) for node, colour in zip(self.nodes, self.colours, strict=True)
                 if colour != OTHERS]  # fmt: skip
        return [*named, ("other nodes", OTHERS)] if OTHERS in self.colours else named

    @cached_property
    def percentiles(self) -> dict[str, list[Percentile]]:
        """By name, the percentiles of all hops that each hop supports, and the maximum."""
        rows = [row.percentiles(PERCENTILES) for row in self.hops.rows]
        found = {
            name: [row[place] for row in rows]
            for place, name in enumerate(("p50", "p99", "p99.9"))
            if all(row[place].supported for row in rows)
        }
        largest = [
            Percentile(1.0, row.max, None, None, 0, supported=False) for row in self.hops.rows
        ]
        return {**found, "max": largest}


def lines(groups: Sequence[Configuration]) -> list[Line]:
    """Of each configuration whose hops are known the worst valid repeat that has some."""
    return list(_lines(groups))


def _lines(groups: Sequence[Configuration]) -> Iterator[Line]:
    for place, group in enumerate(groups):
        known = {member.index: hops for member in group.members if (hops := _hops(member))}
        members = [member for member in group.members if member.index in known]
        if member := group.example(members):
            yield Line(place, group, member, known[member.index])


def _hops(member: Member) -> Hops | None:
    stored = member.evaluation.stored
    return None if stored is None else stored.hops
