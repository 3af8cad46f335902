"""The tables of hops as rows of finished text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tailtap.analysis.evaluation.hops import Hop
from tailtap.analysis.runs.text import count_text, time_text
from tailtap.show.report.hops import PERCENTILES, Colour, Line
from tailtap.show.report.tables import Cell, percentile_cell

HEADS = (
    ("packets", "Packets that came into the node and left it"),
    ("lost", "Packets that came into the node and did not leave it"),
    ("p50", "Half of the packets took at most this for the hop"),
    ("p99", ""),
    ("p99.9", ""),
    ("max", "The longest that a packet took for the hop"),
    ("slowest of the worst", "Of how many of the worst packets it took the longest part"),
)


@dataclass(frozen=True)
class HopRow:
    """A hop."""

    node: str
    colour: Colour
    look: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class LineTable:
    """The hops of a run."""

    line: Line
    title: str
    summary: str
    rows: tuple[HopRow, ...]


def line_tables(lines: Sequence[Line]) -> list[LineTable]:
    """The table of each line."""
    return [LineTable(line, line.member.label, _summary(line), _rows(line)) for line in lines]


def _summary(line: Line) -> str:
    """Which hop made the worst packets, and which one lost packets."""
    slowest = line.hops.slowest
    known = int(slowest.sum())
    said = "No packet was seen at all taps."
    if known:
        most = int(slowest.argmax())
        said = (
            f"{line.nodes[most]} took the longest part of {count_text(int(slowest[most]))} of the "
            f"{count_text(known)} worst packets."
        )
    losing = [(row.name, row.counts.lost) for row in line.hops.rows if row.counts.lost]
    if not losing:
        return f"{said} No node lost a packet."
    told = ", ".join(f"{node} {count_text(lost)}" for node, lost in losing)
    return f"{said} Lost: {told}."


def _rows(line: Line) -> tuple[HopRow, ...]:
    slowest = line.hops.slowest
    most = int(slowest.argmax()) if slowest.any() else -1
    return tuple(
        HopRow(row.name, colour, "worst" if place == most else "", _cells(row, int(slowest[place])))
        for place, (row, colour) in enumerate(zip(line.hops.rows, line.colours, strict=True))
    )


def _cells(row: Hop, slowest: int) -> tuple[Cell, ...]:
    lost = row.counts.lost
    return (
        Cell(count_text(row.counts.matched)),
        Cell(count_text(lost), "alarm" if lost else "zero"),
        *(percentile_cell(found) for found in row.percentiles(PERCENTILES)),
        Cell(time_text(row.max), "max"),
        Cell(count_text(slowest), "" if slowest else "zero"),
    )
