"""What the captures of a run say of flows, and what lost packets have in common."""

from __future__ import annotations

from collections.abc import Iterator

from tailtap.analysis.evaluation.flows import HEADS, SHOWN
from tailtap.analysis.runs.groups import Configuration, Member
from tailtap.analysis.runs.text import count_text, time_text
from tailtap.records.evaluation import FlowRecord
from tailtap.show.report.tables import DASH, Cell, Grouped, Row, count_look, percentile_cell


def flows_of(groups: list[Configuration]) -> Grouped:
    """The first flows of each run whose evaluation has them; without rows where none has."""
    found = [list(_rows(group, member)) for group in groups for member in group.members]
    return Grouped(HEADS, [rows for rows in found if rows])


def _rows(group: Configuration, member: Member) -> Iterator[Row]:
    stored = member.evaluation.stored
    for flow in (stored.flows if stored and stored.flows else [])[:SHOWN]:
        name = f"{member.label}: {flow.flow or 'no frames'}"
        yield Row(name, group.light, group.dark, "", tuple(_cells(flow)))


def _cells(flow: FlowRecord) -> Iterator[Cell]:
    yield Cell(count_text(flow.packets))
    yield Cell(*count_look(flow.lost, True))
    if flow.latency_ns is None:
        yield from [Cell(DASH)] * (len(HEADS) - 2)
        return
    yield from map(percentile_cell, flow.latency_ns.percentiles)
    yield Cell(time_text(flow.latency_ns.max), "max")


def patterns_of(groups: list[Configuration]) -> list[str]:
    """A sentence for each thing that the lost packets of a run have in common."""
    return [
        f"{member.label}: {pattern.text}."
        for group in groups
        for member in group.members
        if member.evaluation.stored
        for pattern in member.evaluation.stored.loss_patterns or ()
    ]
