"""The section of the page that ranks configurations, as far as their repeats can tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tailtap.analysis.compare.checks import advise
from tailtap.analysis.compare.comparison import load_record, required_percentiles
from tailtap.analysis.compare.configurations import gather
from tailtap.analysis.compare.ranking import rank
from tailtap.analysis.compare.significance import rank_text
from tailtap.analysis.runs.groups import Configuration
from tailtap.analysis.runs.run import Experiment
from tailtap.analysis.runs.text import time_text
from tailtap.base.errors import InputError
from tailtap.records.compare import LoadRow, Standing
from tailtap.show.report.tables import DASH, Cell, Row

HEADS = ("rank", "repeats, the worst first", "over the first, 95 %", "p, corrected")


@dataclass(frozen=True)
class Compared:
    """The configurations under one load."""

    title: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Section:
    """All loads that have a ranking, and what follows."""

    heads: Sequence[str]
    loads: tuple[Compared, ...]
    sentences: tuple[str, ...]


def compared(experiment: Experiment, groups: list[Configuration]) -> Section | None:
    """The section; None where no two configurations were measured under the same load."""
    try:
        required = required_percentiles([experiment.folder])
        ranked = rank(gather(experiment.finished), required=required)
        rankings = [found for found in ranked if not found.reason]
    except InputError:
        return None  # published percentiles that do not go together
    if not rankings:
        return None
    colours = {
        (member.run.number, member.run.slug): group for group in groups for member in group.members
    }
    loads = tuple(_compared(load_record(ranking), colours) for ranking in rankings)
    return Section(HEADS, loads, tuple(advise(rankings)))


def _compared(load: LoadRow, colours: Mapping[tuple[int, str], Configuration]) -> Compared:
    rows = []
    best = load.configurations[0].label
    for found in load.configurations:
        first = found.repeats[0]
        group = colours[first.number, first.run]
        cells = (Cell(rank_text(found.rank)), Cell(_repeats(found)), *_over(best, found, load))
        source = group.origin.source if group.origin else ""
        rows.append(Row(found.label, group.light, group.dark, "", cells, source))
    return Compared(f"{load.load}, {load.percentile_text}", tuple(rows))


def _repeats(found: Standing) -> str:
    values = [found.repeats[place].latency for place in found.worst_first]
    return ", ".join("unknown" if value is None else time_text(value) for value in values)


def _over(best: str, found: Standing, load: LoadRow) -> tuple[Cell, Cell]:
    """The difference to the configuration in the first line."""
    sides = {best, found.label}
    pair = next((p for p in load.comparisons if {p.slower, p.faster} == sides), None)
    if pair is None:
        return Cell(DASH), Cell(DASH)
    look = "" if pair.significant else "zero"
    hint = (
        f"p = {pair.p:.2g} before the correction; so many repeats reach "
        f"{pair.smallest_p:.2g} at best"
    )
    return Cell(found.over_first or DASH, look), Cell(f"{pair.p_corrected:.2g}", look, hint)
