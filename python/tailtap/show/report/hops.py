"""A line hop by hop, in the report: a table by node, the percentiles by node, the worst packets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from tailtap.analysis.evaluation.hops import UNKNOWN, Hops
from tailtap.analysis.evaluation.values import Column
from tailtap.analysis.figures.kinds import Axis
from tailtap.analysis.figures.quantities import NUMBER, TIME
from tailtap.analysis.figures.specification import (
    DASHES,
    Entry,
    Mark,
    Panel,
    Series,
    Specification,
    in_rows,
)
from tailtap.analysis.runs.groups import DARK, LIGHT, Colour, Configuration, Member
from tailtap.analysis.runs.text import time_text
from tailtap.records.evaluation import Percentile, packet_name
from tailtap.show import sections
from tailtap.show.report.tables import mark_of
from tailtap.show.sections import Mark as Swatch
from tailtap.show.sections.latency import hop_section

PACKETS = 40
"""Worst packets that figures show, the worst first."""
NAMED = len(LIGHT[0])
"""Nodes with a colour of their own: those that took most of these packets' time."""
PERCENTILES = (0.5, 0.99, 0.999)


DASH = {"p50": 0, "p99": 1, "p99.9": 2, "max": 4}
"""The dashes of percentiles."""
MOST_LABELS = 16
"""Nodes that an axis has room to name."""
HALF = 0.42
"""Half of a bar's width, in packets."""
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


def lines(groups: Sequence[Configuration]) -> Iterator[Line]:
    """Of each configuration whose hops are known the worst valid repeat that has some."""
    for place, group in enumerate(groups):
        known = {one.index: hops for one in group.members if (hops := one.evaluation.hops)}
        members = [member for member in group.members if member.index in known]
        if member := group.example(members):
            yield Line(place, group, member, known[member.index])


def hop_figures(lines: Sequence[Line]) -> list[Specification]:
    """The percentiles of each hop, and the worst packets by hop; none without lines."""
    packets = [line for line in lines if line.shown.size]
    made = [(lines, _percentiles), (packets, _packets)]
    return [make(shown) for shown, make in made if shown]


def _percentiles(lines: Sequence[Line]) -> Specification:
    """The percentiles of each hop with their intervals, one panel for each line."""
    panels = []
    for place, (line, at) in enumerate(zip(lines, in_rows(len(lines)), strict=True)):
        x = np.arange(1.0, len(line.nodes) + 1)
        marks = []
        for name, rows in line.percentiles.items():
            y = np.array([max(row.value, 1) for row in rows], float)
            low, high = (
                np.array([np.nan if end is None else max(end, 1) for end in ends], float)
                for ends in zip(*((row.low, row.high) for row in rows), strict=True)
            )
            told = [
                f"{node}: {name} {time_text(row.value)}"
                for node, row in zip(line.nodes, rows, strict=True)
            ]
            marks.append(Mark(place, "points", "main", x, y, low, high, dash=DASH[name],
                              member=line.member.index, told=told))  # fmt: skip
        axis = Axis("Node", NUMBER, low=0.6, high=len(x) + 0.4, ticks=labelled(line.nodes))
        panels.append(Panel(line.group.title, *at, tuple(marks), line.place, axis))
    shown = {name for line in lines for name in line.percentiles}
    return Specification(
        "hops",
        "Percentiles by hop",
        Axis("Node", NUMBER),
        Axis("Time for the hop", TIME, log=True),
        tuple(panels),
        tuple(Series(line.group.title, line.group.light, line.group.dark) for line in lines),
        tuple(Entry(name, "#555555", "line", dash) for name, dash in DASH.items() if name in shown),
        common="",
    )


def _packets(lines: Sequence[Line]) -> Specification:
    """A bar for each of the worst packets, in which each hop has its share."""
    axes = Axis("The worst packets, the worst first", NUMBER), Axis("Latency", TIME)
    series: list[Series] = []
    panels = []
    for line, at in zip(lines, in_rows(len(lines)), strict=True):
        count = line.shown.size
        totals = line.times.sum(axis=1)
        x = np.arange(1.0, count + 1)
        edges = np.column_stack((np.zeros(count, np.int64), np.cumsum(line.times, axis=1)))
        stored = line.member.run.stored
        worst, first_ns = stored.worst_packets, stored.inputs.ingress.first_ns
        packets = [
            packet_name(worst.key[place], int(worst.ingress_ns[place]) - first_ns)
            for place in line.shown.tolist()
        ]
        marks = []
        for hop, (node, colour) in enumerate(zip(line.nodes, line.colours, strict=True)):
            told = [
                f"{node}: {time_text(ns)} of {time_text(total)}, {packet}"
                for ns, total, packet in zip(
                    line.times[:, hop].tolist(), totals.tolist(), packets, strict=True
                )
            ]
            low, high = edges[:, hop].astype(float), edges[:, hop + 1].astype(float)
            marks.append(Mark(len(series), "boxes", "main", x - HALF, high, low, high, x + HALF,
                              member=line.member.index, told=told))  # fmt: skip
            series.append(Series(node, *colour))
        ticks = {float(tick): str(tick) for tick in (1, *range(5, count + 1, 5))}
        legend = tuple(Entry(node, colour.light, "boxes") for node, colour in line.legend)
        own = (
            replace(axes[0], low=0.4, high=count + 0.6, ticks=ticks),
            replace(axes[1], low=0, high=1.4 * float(totals.max())),  # no bar below the legend
        )
        panels.append(Panel(line.group.title, *at, tuple(marks), line.place, *own, legend))
    return Specification(
        "hop-packets",
        "The worst packets by hop",
        *axes,
        tuple(panels),
        tuple(series),
        common="",
    )


def labelled(nodes: Sequence[str]) -> dict[float, str]:
    """The nodes that an axis names, by their places from 1."""
    step = -(-len(nodes) // MOST_LABELS)
    return {float(place): node for place, node in enumerate(nodes, 1) if (place - 1) % step == 0}


@dataclass(frozen=True)
class Section:
    """What the template needs; without lines nothing is in it."""

    lines: list[tuple[Line, sections.Section]]
    dashes: dict[str, Sequence[float]]
    """How the percentiles are drawn that some figure shows."""
    repeats: str
    """Which repeats are shown, where not all are."""


def _section_of(line: Line) -> sections.Section:
    marks = [Swatch(*colour) for colour in line.colours]
    record = line.hops.record(PERCENTILES)
    return hop_section(record, line.member.label, marks, mark_of(line.group))


def section(lines: Sequence[Line]) -> Section:
    """The section about some lines."""
    shown = {name for line in lines for name in line.percentiles}
    several = any(len(line.group.members) > 1 for line in lines)
    return Section(
        [(line, _section_of(line)) for line in lines],
        {name: DASHES[dash] for name, dash in DASH.items() if name in shown},
        "Of each configuration the worst repeat is shown." if several else "",
    )
