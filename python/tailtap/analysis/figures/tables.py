"""Tables of one's own runs in the form of the papers' tables 4 to 7."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from tailtap.analysis.figures.arranging import Layout, value_of
from tailtap.analysis.figures.model import Along, Figure
from tailtap.analysis.figures.quantities import parse_percentile
from tailtap.analysis.figures.specification import Grid, Specification
from tailtap.analysis.figures.tails import modelled, summed
from tailtap.analysis.runs.groups import grouped
from tailtap.analysis.runs.run import Run
from tailtap.analysis.runs.text import share_text, time_text
from tailtap.base.errors import InputError

YES, NO, NONE = "✓", "×", "–"
STEPS = (1.25, 2, 4, 8, 16)
"""Up to so many times the best value a grade reaches."""
SHARES = (0, 1e-6, 1e-5, 1e-4, 1e-3)
"""The same of shares of packets, which may be 0."""
GRADES = (YES * 3, YES * 2, YES, NO, NO * 2, NO * 3)


def table(figure: Figure, layout: Layout, base: Specification) -> Specification:
    """A table of its runs. Raises `InputError` where they have nothing for it."""
    grid, notes = _MADE[figure.kind](figure, layout)
    return replace(base, tables=(replace(grid, title=base.title),), notes=(*base.notes, *notes))


def _models(figure: Figure, layout: Layout) -> tuple[Grid, list[str]]:
    """Tables 4 and 5: exceedances and boundedness of each configuration."""
    models, without = modelled(figure, layout)
    groups = grouped(models, lambda one: one.placed.line).values()
    heads, told = _columns(figure, [group[0].placed.run for group in groups])
    rows, data = [], []
    for first, group in zip(told, groups, strict=True):
        row = summed(group)
        exceedances = NONE if row.exceedances is None else f"{row.exceedances:.2f}"
        bounded = NONE if row.bounded is None else f"{100 * row.bounded:.1f}\u00a0%"
        rows.append((*first, str(len(group)), exceedances, bounded))
        data.append((*first, len(group), row.models, row.exceedances, row.bounded))
    notes = [
        (
            "Exceedances: the mean number of bursts in the rest of a run above the level that its "
            "model says is exceeded once. Bounded: the share of models whose level stays finite "
            "for ever longer times."
        )
    ]
    if without:
        notes.append(f"Runs without a tail model: {without}.")
    grid = Grid(
        "",
        (*heads, "runs", "exceedances", "bounded"),
        tuple(rows),
        data_heads=(*heads, "runs", "models", "exceedances", "bounded"),
        data=tuple(data),
    )
    return grid, notes


def _columns(figure: Figure, runs: Sequence[Run]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The columns that say which configuration a row is: variables, then check marks."""
    marks = figure.sign or {}
    signed = {mark.partition("=")[0] for every in marks.values() for mark in every}
    along = [*(figure.panels or []), *([figure.series] if figure.series else [])]
    named = [(variable, one) for one in along for variable in one.by if variable not in signed]
    if not along:
        varied = dict.fromkeys(variable for run in runs for variable in run.variables)
        named = [(variable, Along(by=[variable])) for variable in varied if variable not in signed]
    heads = tuple(variable.rpartition(".")[2] for variable, _ in named) + tuple(marks)
    rows = []
    for run in runs:
        values = [one.name(value_of(run, variable) or NONE) for variable, one in named]
        signs = [YES if any(_has(run, mark) for mark in every) else NO for every in marks.values()]
        rows.append((*values, *signs))
    if not heads:
        return ("experiment",), [(run.experiment,) for run in runs]
    return heads, rows


def _has(run: Run, mark: str) -> bool:
    variable, _, value = mark.partition("=")
    return value_of(run, variable) == value


def _latencies(figure: Figure, layout: Layout) -> tuple[Grid, list[str]]:
    """Table 6: the largest latency of any run in each cell; columns are those of the panels."""
    p = parse_percentile(figure.percentile or "max")
    cells: dict[tuple[int, int, int], list[tuple[int, Run]]] = {}
    for one in layout.placed:
        found = one.run.percentile(p)
        if found is not None and (p == 1 or found.supported):
            cells.setdefault((one.row, one.series, one.column), []).append((found.value, one.run))
    if not cells:
        raise InputError(f"no run has {figure.percentile or 'max'}, or enough packets above it")
    heads = tuple(name or figure.percentile or "max" for name in layout.columns)
    rows: list[tuple[str, ...]] = []
    data: list[tuple[object, ...]] = []
    for row, name in enumerate(layout.rows):
        for series, line in enumerate(layout.series):
            label = " · ".join(filter(None, (name, line.label)))
            texts = []
            for column, head in enumerate(heads):
                cell = cells.get((row, series, column))
                if cell is None:
                    texts.append(NONE)
                    continue
                value, run = max(cell, key=lambda pair: pair[0])
                texts.append(time_text(value))
                data.append((label, head, value, run.slug))
            if any(text != NONE for text in texts):
                rows.append((label, *texts))
    told = "largest latency" if p == 1 else f"highest {figure.percentile}"
    note = f"The {told} of all runs of a cell, over repeats and whatever else varies."
    grid = Grid(
        "",
        ("", *heads),
        tuple(rows),
        data_heads=("configuration", "column", "latency_ns", "run"),
        data=tuple(data),
    )
    return grid, [note]


def _grades(figure: Figure, layout: Layout) -> tuple[Grid, list[str]]:
    """Table 7: the worst run of each configuration, graded by how far it is from the best."""
    p = parse_percentile(figure.percentile or "max")

    def latency(run: Run) -> float | None:
        row = run.percentile(p)
        return None if row is None else float(row.value)

    def memory(run: Run) -> float | None:
        return None if run.record is None else run.record.forwarder_memory

    def watts(run: Run) -> float | None:
        return None if run.energy is None else run.energy.watts

    wanted: list[tuple[str, str, Callable[[Run], float | None], Callable[[float], str], bool]] = [
        (f"latency ({figure.percentile or 'max'})", "latency_ns", latency, time_text, False),
        ("loss", "loss", lambda run: run.loss, share_text, True),
        ("power", "power_w", watts, lambda power: f"{power:.1f}\u00a0W", False),
        ("memory", "memory_bytes", memory, lambda size: f"{size / 1e6:.1f}\u00a0MB", False),
    ]
    groups = grouped(layout.placed, lambda one: one.line).values()
    heads, told = _columns(figure, [group[0].run for group in groups])
    columns: list[tuple[str, str, list[str], list[object]]] = []
    for name, unit, of, text, share in wanted:
        values = [_most(of(one.run) for one in group) for group in groups]
        known = [value for value in values if value is not None]
        if not known:
            continue
        best = min(known)
        graded = [
            NONE if value is None else f"{grade(value, best, share=share)} {text(value)}"
            for value in values
        ]
        columns.append((name, unit, graded, list(values)))
    rows = [(*first, *(column[2][at] for column in columns)) for at, first in enumerate(told)]
    data = [(*first, *(column[3][at] for column in columns)) for at, first in enumerate(told)]
    names, units = [column[0] for column in columns], [column[1] for column in columns]
    note = (
        "Each value is that of a configuration's worst run. Grades by how many times the best "
        f"value it is: {YES * 3} up to {STEPS[0]:g}, then up to {STEPS[1]:g}, {STEPS[2]:g}, "
        f"{STEPS[3]:g}, {STEPS[4]:g}, and {NO * 3} above; of loss {YES * 3} is none, then up to "
        "one packet in a million, and ten times as many at each step. What was not measured, such "
        "as security, has no grade."
    )
    return Grid("", (*heads, *names), tuple(rows), data_heads=(*heads, *units), data=tuple(data)), [
        note
    ]


def grade(value: float, best: float, *, share: bool = False) -> str:
    """The grade of a value beside the best one, or of a `share` of packets by itself."""
    limits = SHARES if share else [step * best for step in STEPS]
    return GRADES[sum(value > limit for limit in limits)]


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


_MADE = {"models": _models, "tail-latency": _latencies, "grades": _grades}
