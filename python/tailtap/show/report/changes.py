"""What the device changed in packets, as a table of the page."""

from __future__ import annotations

from collections.abc import Sequence

from tailtap.analysis.runs.groups import Configuration
from tailtap.analysis.runs.text import count_text
from tailtap.show.report.tables import DASH, Cell, Row, Table

HEADS = ("what", "before", "behind", "packets", "ways")


def changed(groups: Sequence[Configuration]) -> Table:
    """What differs behind the device, of each run whose captures hold frames: a row for each."""
    members = [(group, member) for group in groups for member in group.members]
    rows = []
    for group, member in members:
        stored = member.evaluation.stored
        if stored is None or stored.device is None:
            continue
        looked_at = count_text(stored.device.looked_at)
        for change in stored.device.changes:
            ends = (change.before or DASH, change.after or DASH)
            counts = (f"{count_text(change.packets)} of {looked_at}", count_text(change.ways))
            cells = tuple(Cell(text) for text in (change.what, *ends, *counts))
            rows.append(Row(member.label, group.light, group.dark, "", cells))
    return Table(HEADS, rows)
