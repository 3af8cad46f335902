"""Figure 8 of the papers as a table: the increments of interrupt counters under the late packets.

Each row has a strip: what happened over the time of the run, normalised to the row's largest. The
strips lie below each other, so that what moves together is seen, and the p-value beside it says
how often chance does as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tailtap.analysis.interrupts.analysis import Finding
from tailtap.analysis.interrupts.runs import finding_of
from tailtap.analysis.interrupts.windows import Integers
from tailtap.analysis.runs.groups import Configuration, Member
from tailtap.analysis.runs.text import count_text, time_text, with_micro_sign
from tailtap.base.errors import InputError
from tailtap.records import interrupts
from tailtap.records.interrupts import FILE
from tailtap.show.report.tables import DASH, Cell

HEADS = (
    ("most", "The most increments from one sample to the next: the height of the strip"),
    ("where late", "Increments a second in the windows of the latest packets, a tenth at most"),
    ("elsewhere", "Increments a second in all other windows"),
    ("p", "How often chance alone ties any counter so closely to the late packets"),
)
"""Columns after the strip, and what they tell."""
SHOWN = 8
"""Counters that are not associated and are shown all the same: those that come closest."""
STRIP, HIGH = 480, 20
"""The size of a strip, in the units of its own drawing."""


@dataclass(frozen=True)
class CounterRow:
    """A counter of a run."""

    name: str
    look: str
    strip: str
    """The path of its strip, as SVG writes it."""
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Sampled:
    """What the page says of a run whose interrupts were sampled."""

    group: Configuration
    title: str
    summary: str
    late: str
    """The path of the late packets' strip."""
    rows: tuple[CounterRow, ...]
    omitted: int


@dataclass(frozen=True)
class Section:
    """The runs whose interrupts were sampled."""

    runs: Sequence[Sampled]
    heads: tuple[tuple[str, str], ...] = HEADS


def sampled_of(
    groups: Sequence[Configuration], progress: Callable[[str], None] = lambda _: None
) -> list[Sampled]:
    """The sampled run of each configuration, the worst valid repeat where several were sampled."""
    found = []
    for group in groups:
        members = [member for member in group.members if _is_sampled(member)]
        member = group.example(members)
        if member is None:
            continue
        progress(f"which interrupts rose where packets of {member.run.slug} were late")
        found.append(_sampled(group, member))
    return found


def _is_sampled(member: Member) -> bool:
    folder = member.run.own_folder
    return folder is not None and (folder / FILE).is_file()


def _sampled(group: Configuration, member: Member) -> Sampled:
    folder = member.run.own_folder
    assert folder is not None
    try:
        finding = finding_of(member.run, folder / FILE)
    except InputError as error:
        return Sampled(group, member.label, str(error), "", (), 0)
    sure = sum(row.associated for row in finding.counters)
    shown = finding.counters[: max(sure, SHOWN)]
    windows = finding.windows
    return Sampled(
        group,
        member.label,
        with_micro_sign(_summary(finding, sure)),
        strip(finding.late.lateness(windows.bounds_ns)) if windows.number else "",
        tuple(
            _row(row, windows.increments[windows.names.index(row.name)], windows.number)
            for row in shown
        ),
        len(finding.counters) - len(shown),
    )


def _summary(finding: Finding, sure: int) -> str:
    said = (
        f"{count_text(len(finding.late.ingress_ns))} worst packets, from "
        f"{time_text(finding.threshold_ns)}, and {count_text(finding.samples)} samples, one each "
        f"{time_text(finding.windows.period_ns)}. "
    )
    if finding.reason is not None:
        return f"{said}Nothing can be told: {finding.reason}."
    if not sure:
        return f"{said}No counter rises where packets are late, more than chance explains."
    return (
        f"{said}{count_text(sure)} of {count_text(len(finding.counters))} counters are associated."
    )


def _row(row: interrupts.CounterRow, increments: Integers, windows: int) -> CounterRow:
    most = int(increments.max()) if windows else 0
    cells = (
        Cell(count_text(most)),
        Cell(f"{row.late_per_s:,.1f}"),
        Cell(f"{row.elsewhere_per_s:,.1f}"),
        Cell(
            DASH if row.p_value is None else f"{row.p_value:.3f}",
            "",
            "" if row.p_value is not None else "rose too rarely to be told from chance",
        ),
    )
    return CounterRow(row.name, "" if row.associated else "present", strip(increments), cells)


def strip(values: Integers) -> str:
    """The outline of some values, from 0 to the largest, as the path of an SVG of `STRIP`, `HIGH`.

    Of more values than the strip is wide, each column shows the largest of its share.
    """
    if not values.size or not values.any():
        return ""
    starts = np.unique(np.arange(min(values.size, STRIP)) * values.size // min(values.size, STRIP))
    tops = np.maximum.reduceat(values, starts)
    edges = np.append(starts, values.size) * STRIP / values.size
    heights = HIGH - tops * (HIGH - 1) / tops.max()
    steps = "".join(
        f"V{height:.1f}H{edge:.1f}" for height, edge in zip(heights, edges[1:], strict=True)
    )
    return f"M0 {HIGH}{steps}V{HIGH}Z"
