"""The sections of the page that hold configurations against each other."""

from __future__ import annotations

from collections.abc import Sequence

from tailtap.analysis.compare import counters as compare
from tailtap.analysis.compare.checks import advise
from tailtap.analysis.compare.comparison import load_record, required_percentiles
from tailtap.analysis.compare.configurations import gather
from tailtap.analysis.compare.ranking import rank
from tailtap.analysis.runs.groups import Configuration
from tailtap.analysis.runs.run import Experiment
from tailtap.base.errors import InputError
from tailtap.show.report.tables import mark_of
from tailtap.show.sections import Mark, Section, Table
from tailtap.show.sections.comparison import COUNTED, RANKED, counted_part, ranked_part


def compared(experiment: Experiment, groups: Sequence[Configuration]) -> Section | None:
    """What is better; None where no two configurations were measured under the same load."""
    try:
        loads = gather(experiment.finished)
        ranked = rank(loads, required=required_percentiles([experiment.folder]))
    except InputError:
        return None  # published percentiles that do not go together
    found = [one for one in ranked if not one.reason]
    if not found:
        return None
    colours = _colours(groups)
    parts = []
    for record in map(load_record, found):
        shown = (*record.configurations, *record.floors)
        marks = {one.label: colours[one.repeats[0].number, one.repeats[0].run] for one in shown}
        parts.append(ranked_part(record, marks))
    return Section("Which configuration is better", [f"{one}." for one in advise(found)],
                   [Table("which configuration is better", RANKED, parts)])  # fmt: skip


def by_packet(experiment: Experiment, groups: Sequence[Configuration]) -> Table:
    """What was counted per packet under each load: means over repeats, and what differs."""
    title = "what was counted for each packet"
    try:
        loads = gather(experiment.finished)
        found = compare.counters(loads)
    except InputError:  # published runs that do not go together, or samples that cannot be read
        return Table(title, COUNTED, ())
    colours = _colours(groups)
    parts = []
    for load, counted in zip(loads, found, strict=True):
        first = {one.label: one.runs[0] for one in load.ranked}
        marks = {label: colours[run.number, run.slug] for label, run in first.items()}
        parts.append(counted_part(counted, load.label, marks))
    return Table(title, COUNTED, [part for part in parts if part.rows])


def _colours(groups: Sequence[Configuration]) -> dict[tuple[int, str], Mark]:
    """How figures show each run, by its number and its slug."""
    return {
        (member.run.number, member.run.slug): mark_of(group)
        for group in groups
        for member in group.members
    }
