"""Published runs beside ours: the same configuration as the experiment file says, at the same rate.

They are shown and put into numbers, and never judged: another machine measured them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath

import numpy as np

from tailtap.analysis.evaluation.values import DEFAULT
from tailtap.analysis.evaluation.values import label as percentile_label
from tailtap.analysis.figures.arranging import (
    Layout,
    Placed,
    common,
    in_panels,
    matches,
    scale_of,
    worst_of,
)
from tailtap.analysis.figures.kinds import BINS
from tailtap.analysis.figures.model import Figure
from tailtap.analysis.figures.quantities import TIME, parse_percentile
from tailtap.analysis.figures.specification import Form, Grid, Mark, Specification
from tailtap.analysis.runs.reader import fits
from tailtap.analysis.runs.run import Run
from tailtap.analysis.runs.text import rate_text, time_text
from tailtap.base.errors import InputError
from tailtap.base.units import RATE_UNITS

_HEADS = (
    "configuration",
    "published",
    "percentile",
    "here",
    "there",
    "here / there",
    "95 % of ours",
)
_DATA = (
    "configuration",
    "published",
    "percentile",
    "here_ns",
    "here_low_ns",
    "here_high_ns",
    "there_ns",
    "ratio",
    "ratio_low",
    "ratio_high",
)
_NOTE = (
    "Our worst repeat over the published one, at percentiles that both support. Another machine "
    "measured the published runs: the ratio tells how far apart both are, not which is better."
)


def set_beside(
    figure: Figure, layout: Layout, arranged: Specification, published: Sequence[Run]
) -> Specification:
    """A figure with the published runs, and a table of how far ours are from them.

    Raises `InputError` where no published run fits the words of the file.
    """
    pairs, notes = _pairs(figure, layout, published)
    marks = _curves(figure, pairs) if figure.made.of == "run" else _points(figure, layout, pairs)
    panels = {(panel.row, panel.column): panel for panel in in_panels(layout, marks)}
    together = tuple(
        replace(panel, marks=(*panel.marks, *panels[panel.row, panel.column].marks))
        for panel in arranged.panels
    )
    tables = arranged.tables
    if pairs and TIME in (figure.made.x.quantity, figure.made.y.quantity):
        tables = (*tables, _table(figure, layout, pairs))
    return replace(
        arranged, panels=together, tables=tables, notes=(*arranged.notes, *dict.fromkeys(notes))
    )


def _pairs(
    figure: Figure, layout: Layout, published: Sequence[Run]
) -> tuple[list[tuple[Placed, Run]], list[str]]:
    """Our worst repeats and the published ones of the same configuration; and what is missing."""
    assert figure.beside is not None
    chosen: dict[str, tuple[Mapping[str, object], list[Run]]] = {}
    for words, ours in figure.beside.where.items():
        found = [run for run in published if run.evaluation and _fit(run, words)]
        if not found:
            raise InputError(f"no published run is {words!r}")
        chosen[words] = (ours, found)
    p, pairs, notes = common(layout), [], []
    for group in layout.groups():
        mine = worst_of(group, p)
        for words, (values, found) in chosen.items():
            if not matches(mine.run, values):
                continue
            same = found
            if not _names_rate(words) and mine.run.rate is not None:
                same = [run for run in found if run.rate in (None, mine.run.rate)]
            if not same:
                rates = ", ".join(dict.fromkeys(rate_text(r) for run in found if (r := run.rate)))
                notes.append(
                    f"{words} is published at {rates}, not at our rate of "
                    f"{rate_text(mine.run.rate or 0)}."
                )
                continue
            theirs = worst_of([replace(mine, run=run) for run in same], p)
            pairs.append((mine, theirs.run))
    return pairs, notes


def _fit(run: Run, words: str) -> bool:
    """Whether a run is meant: each word fits it, or is several folders of its path in a row."""
    place = PurePath(run.origin.place).parts if run.origin else ()

    def is_place(word: str) -> bool:
        parts = PurePath(word).parts
        return any(place[at : at + len(parts)] == parts for at in range(len(place)))

    every = [word.strip() for word in words.split(",") if word.strip()]
    return bool(every) and all(is_place(word) or fits(run, word) for word in every)


def _names_rate(words: str) -> bool:
    return any(word.strip().endswith(tuple(RATE_UNITS)) for word in words.split(","))


def _curves(figure: Figure, pairs: Sequence[tuple[Placed, Run]]) -> list[tuple[Placed, Mark]]:
    assert figure.made.curves is not None
    form: Form = "dots" if figure.made.dots else "line"
    return [
        (
            mine,
            Mark(
                mine.series,
                form,
                "published",
                trace.x,
                trace.y,
                supported=trace.supported,
                run=_source(run),
            ),
        )
        for mine, run in pairs
        if run.evaluation is not None
        for trace in figure.made.curves(run.evaluation, BINS)
        if not trace.before and trace.low is None
    ]


def _points(
    figure: Figure, layout: Layout, pairs: Sequence[tuple[Placed, Run]]
) -> list[tuple[Placed, Mark]]:
    if figure.made.value is None:
        return []
    _, places = scale_of(figure.over, layout.over)
    at = dict(zip(layout.over, places, strict=True))
    lines: dict[tuple[int, int, int], list[tuple[float, float, Placed, str]]] = {}
    for mine, run in pairs:
        value = figure.made.value(run, figure)
        if value is not None:
            entry = (at[mine.over], value.y, mine, _source(run))
            lines.setdefault(mine.line, []).append(entry)
    found = []
    for line in lines.values():
        line.sort(key=lambda entry: entry[0])
        x, y = (np.array([entry[place] for entry in line], float) for place in (0, 1))
        names = ", ".join(dict.fromkeys(entry[3] for entry in line))
        mine = line[0][2]
        found.append((mine, Mark(mine.series, "points", "published", x, y, run=names)))
    return found


def _table(figure: Figure, layout: Layout, pairs: Sequence[tuple[Placed, Run]]) -> Grid:
    """Our percentiles over the published ones."""
    assert figure.beside is not None
    wanted = [*DEFAULT, 1.0]
    if figure.percentile is not None and figure.made.value is not None:
        wanted = [parse_percentile(figure.percentile)]
    rows: list[tuple[str, ...]] = []
    data: list[tuple[object, ...]] = []
    for mine, run in pairs:
        label = " · ".join(
            filter(
                None,
                (layout.titles[mine.row, mine.column], layout.series[mine.series].label, mine.over),
            )
        )
        for p in wanted:
            here, there = mine.run.percentile(p), run.percentile(p)
            if here is None or there is None or not there.value:
                continue
            if p < 1 and not (here.supported and there.supported):
                continue
            name = "max" if p == 1 else percentile_label(p)
            ratios = [
                None if side is None else side / there.value
                for side in (here.value, here.low, here.high)
            ]
            interval = "–"
            if ratios[1] is not None and ratios[2] is not None:
                interval = f"{ratios[1]:.3g} to {ratios[2]:.3g}"
            rows.append(
                (
                    label,
                    run.origin.short if run.origin else run.slug,
                    name,
                    time_text(here.value),
                    time_text(there.value),
                    f"{ratios[0]:.3g}",
                    interval,
                )
            )
            data.append(
                (
                    label,
                    _source(run),
                    name,
                    here.value,
                    here.low,
                    here.high,
                    there.value,
                    *(None if ratio is None else round(ratio, 6) for ratio in ratios),
                )
            )
    return Grid(f"Beside {figure.beside.name}", _HEADS, tuple(rows), _NOTE, _DATA, tuple(data))


def _source(run: Run) -> str:
    """Where a published run is, and its rate."""
    place = run.origin.path if run.origin else run.slug
    return place if run.rate is None else f"{place}, {rate_text(run.rate)}"
