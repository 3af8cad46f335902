"""The section of the page that ranks configurations, as far as their repeats can tell."""

from __future__ import annotations

from dataclasses import dataclass

from tailtap.compare.advice import advise
from tailtap.compare.configurations import gather
from tailtap.compare.ranking import Ranking, Standing, rank
from tailtap.compare.reading import of_report
from tailtap.compare.words import percentile_text, ratio_text
from tailtap.errors import InputError
from tailtap.report.groups import Configuration
from tailtap.report.tables import DASH, Cell, Row
from tailtap.report.text import time_text
from tailtap.report.values import Experiment

HEADS = ("rank", "repeats, the worst first", "over the first, 95 %", "p, corrected")


@dataclass(frozen=True)
class Compared:
    """The configurations under one load."""

    title: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Section:
    """All loads that have a ranking, and what follows."""

    loads: tuple[Compared, ...]
    sentences: tuple[str, ...]


def compared(experiment: Experiment, groups: list[Configuration]) -> Section | None:
    """The section; None where no two configurations were measured under the same load."""
    samples = [
        of_report(run, run.origin.path if run.origin else experiment.name)
        for run in experiment.finished
    ]
    try:
        rankings = [ranking for ranking in rank(gather(samples)) if not ranking.reason]
    except InputError:
        return None  # published percentiles that do not go together
    if not rankings:
        return None
    colours = {
        (member.run.number, member.run.slug): group for group in groups for member in group.members
    }
    by_sample = {
        id(sample): colours[run.number, run.slug]
        for sample, run in zip(samples, experiment.finished, strict=True)
        if (run.number, run.slug) in colours
    }
    loads = tuple(_compared(ranking, by_sample) for ranking in rankings)
    return Section(loads, tuple(advise(rankings)))


def _compared(ranking: Ranking, by_sample: dict[int, Configuration]) -> Compared:
    rows = []
    for place, standing in enumerate(ranking.standings):
        group = by_sample[id(standing.values[0].sample)]
        cells = (Cell(_rank(standing)), Cell(_repeats(standing)), *_over_the_first(ranking, place))
        source = group.origin.source if group.origin else ""
        rows.append(Row(standing.configuration.label, group.light, group.dark, "", cells, source))
    return Compared(f"{ranking.load.label}, {percentile_text(ranking.percentile)}", tuple(rows))


def _rank(standing: Standing) -> str:
    more = "" if standing.best == standing.last else f" to {standing.last}"
    return f"{standing.best}{more}"


def _repeats(standing: Standing) -> str:
    values = sorted(standing.values, key=lambda value: value.order, reverse=True)
    return ", ".join("unknown" if v.latency is None else time_text(v.latency) for v in values)


def _over_the_first(ranking: Ranking, place: int) -> tuple[Cell, Cell]:
    """The difference to the configuration in the first line."""
    if place == 0:
        return Cell(DASH), Cell(DASH)
    pair = ranking.pair(place, 0)
    look = "" if pair.significant else "zero"
    hint = f"p = {pair.p:.2g} before the correction; so many repeats reach {pair.least:.2g} at best"
    return Cell(ratio_text(pair.shift), look), Cell(f"{pair.corrected:.2g}", look, hint)
