"""The section of the page about hops: its tables and its figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tailtap.show import sections
from tailtap.show.report.hops import PERCENTILES, Colour, Line
from tailtap.show.report.hops.interactive import DASHES, Figure, colours_of, figures
from tailtap.show.report.tables import mark_of
from tailtap.show.sections import Mark
from tailtap.show.sections.latency import hop_section


@dataclass(frozen=True)
class Section:
    """What the template needs; without lines nothing is in it."""

    lines: list[tuple[Line, sections.Section]]
    colours: list[Colour]
    """The colours of bars, by which their tags name them."""
    dashes: dict[str, list[int]]
    """How the percentiles are drawn that some figure shows."""
    figures: list[Figure]
    repeats: str
    """Which repeats are shown, where not all are."""


def _hops(line: Line) -> sections.Section:
    marks = [Mark(*colour) for colour in line.colours]
    record = line.hops.record(PERCENTILES)
    return hop_section(record, line.member.label, marks, mark_of(line.group))


def section(lines: Sequence[Line]) -> Section:
    """The section about some lines."""
    shown = {name for line in lines for name in line.percentiles}
    several = any(len(line.group.members) > 1 for line in lines)
    return Section(
        [(line, _hops(line)) for line in lines],
        colours_of(lines),
        {name: dash for name, dash in DASHES.items() if name in shown},
        list(figures(lines)),
        "Of each configuration the worst repeat is shown." if several else "",
    )
