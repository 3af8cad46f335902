"""Figures of many tail models together, from the ``tail.json`` of each run.

They are those of "Packet processing in virtualized environments", section 6: whether the fitted
parts are stationary, which threshold fits how well, which latencies thresholds are, what shape
tails have, and whether bounded models are exceeded less often.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean

import numpy as np

from tailtap.analysis.figures.arranging import Layout, Placed, in_panels
from tailtap.analysis.figures.model import Figure
from tailtap.analysis.figures.specification import Mark, Specification
from tailtap.analysis.runs.groups import grouped
from tailtap.analysis.runs.run import Run
from tailtap.analysis.runs.text import time_text
from tailtap.base.errors import InputError
from tailtap.base.units import format_share
from tailtap.records.record import read
from tailtap.records.tail import TailRecord

FILE = "tail.json"
LEVEL = 0.05
"""The level of both tests."""
FEWEST = 3
"""A correlation of fewer pairs says nothing."""


@dataclass(frozen=True)
class Fit:
    """The model of a run at one threshold, of either method."""

    threshold: str
    latency_ns: float | None
    exceedances: int
    xi: float | None
    divergence: float | None
    bounded: bool | None
    bursts: int | None
    """Clusters of the rest of the run above the level that one is expected above."""
    chosen: bool


@dataclass(frozen=True)
class Modelled:
    """A run in its place, and its tail model."""

    placed: Placed
    record: TailRecord
    fits: tuple[Fit, ...]

    @property
    def chosen(self) -> Fit | None:
        """The fit that the model takes; None where it takes none."""
        return next((fit for fit in self.fits if fit.chosen), None)


def modelled(figure: Figure, layout: Layout) -> tuple[list[Modelled], int]:
    """The runs that have a tail model, and how many have none.

    Raises `InputError` where no run has one, or a file is damaged.
    """
    found = [
        Modelled(one, record, fits_of(record, figure.method or "papers"))
        for one in layout.placed
        if (record := tail_record(one.run)) is not None
    ]
    if not found:
        raise InputError("no run has a tail model: `tailtap model DIR` makes them")
    return found, len(layout.placed) - len(found)


def tail_record(run: Run) -> TailRecord | None:
    """The stored tail model of a run; None without one. Raises `InputError` for a damaged one."""
    path = (run.own_folder or Path()) / FILE
    return read(path, TailRecord) if run.own_folder is not None and path.is_file() else None


def fits_of(record: TailRecord, method: str) -> tuple[Fit, ...]:
    """The fits of a model by the ``papers``' method, or by ours, whose refused ones are left out.

    One of ours is chosen where it was not refused.
    """
    if method == "papers":
        return tuple(
            Fit(
                row.threshold,
                row.latency_ns,
                row.exceedances,
                row.xi,
                row.jensen_shannon,
                row.bounded,
                row.bursts_above,
                row.threshold == record.papers.chosen,
            )
            for row in record.papers.thresholds
        )
    return tuple(
        Fit(
            row.threshold,
            row.latency_ns,
            row.exceedances,
            row.xi.value if row.xi else None,
            row.jensen_shannon,
            row.limit_ns is not None if row.xi else None,
            row.check.bursts_above if row.check else None,
            row.threshold == record.chosen,
        )
        for row in record.thresholds
        if not row.refused
    )


def ensemble(figure: Figure, layout: Layout, base: Specification) -> Specification:
    """A figure of the tail models of its runs. Raises `InputError` as `modelled` does."""
    models, without = modelled(figure, layout)
    drawn = _DRAWN[figure.kind](models, layout, base)
    notes = list(drawn.notes)
    if figure.method == "tailtap":
        notes.append("By our models: thresholds that their diagnostics refuse are left out.")
    else:
        notes.append("By the published method.")
    if without:
        runs = "1 run has" if without == 1 else f"{without} runs have"
        notes.append(f"{runs} no tail model: tailtap model makes them.")
    return replace(drawn, notes=tuple(notes))


def _stationarity(models: Sequence[Modelled], layout: Layout, base: Specification) -> Specification:
    """p values of both tests over how many packets exceed the chosen threshold."""
    tests = ("ADF", "KPSS")
    rows = [
        (one, fit.exceedances, row)
        for one in models
        for row in one.record.stationarity[:1]
        if (fit := one.chosen or next(iter(one.fits), None)) is not None and fit.exceedances
    ]
    marks = [
        (one.placed, Mark(one.placed.series, "dots", "main", np.array([float(exceedances)]),
                          np.array([p]), run=one.placed.run.slug, test=test))
        for one, exceedances, row in rows
        for test, p in zip(tests, (row.adf_p, row.kpss_p), strict=True)
    ]  # fmt: skip
    notes = list(base.notes)
    if rows:
        adf = mean(row.adf_p < LEVEL for _, _, row in rows)
        kpss = mean(row.kpss_p > LEVEL for _, _, row in rows)
        notes.append(
            f"Of {len(rows)} fitted parts, ADF has p < 0.05 for {format_share(adf)} and KPSS p > "
            f"0.05 for {format_share(kpss)}: that is stationary. KPSS's table ends at 0.01 and "
            "0.1."
        )
    panels = in_panels(layout, marks)
    return replace(base, panels=panels, tests=tests, notes=tuple(notes), rulers={LEVEL: ""})


def _over_thresholds(
    models: Sequence[Modelled],
    layout: Layout,
    base: Specification,
    value: Callable[[Fit], float | None],
) -> Specification:
    """A value of each fit at the place of its threshold."""
    names = list(dict.fromkeys(fit.threshold for one in models for fit in one.fits))
    return _spread(
        models,
        layout,
        base,
        names,
        lambda one: (
            (names.index(fit.threshold), found)
            for fit in one.fits
            if (found := value(fit)) is not None
        ),
    )


def _spread(
    models: Sequence[Modelled],
    layout: Layout,
    base: Specification,
    names: Sequence[str],
    values: Callable[[Modelled], Iterator[tuple[int, float]]],
) -> Specification:
    """Values of all models of a panel and a series, at the places of their names."""
    marks = []
    for group in grouped(models, lambda one: one.placed.line).values():
        at, pairs = group[0].placed, [pair for one in group for pair in values(one)]
        if pairs:
            x, y = np.array(pairs, float).T
            marks.append((at, Mark(at.series, "spread", "main", x, y)))
    return replace(base, panels=in_panels(layout, marks), categories=tuple(names))


def _thresholds(models: Sequence[Modelled], layout: Layout, base: Specification) -> Specification:
    found = _over_thresholds(models, layout, base, lambda fit: fit.latency_ns)
    every = [fit.latency_ns for one in models for fit in one.fits if fit.latency_ns is not None]
    told = f"The mean threshold is {time_text(mean(every))}." if every else ""
    return replace(found, notes=(*found.notes, *([told] if told else [])))


def _shape(models: Sequence[Modelled], layout: Layout, base: Specification) -> Specification:
    names = ("bounded", "not bounded")

    def values(one: Modelled) -> Iterator[tuple[int, float]]:
        fit = one.chosen
        if fit is not None and fit.xi is not None and fit.bounded is not None:
            yield int(not fit.bounded), fit.xi

    return replace(_spread(models, layout, base, names, values), rulers={0.0: ""})


def _exceedances(models: Sequence[Modelled], layout: Layout, base: Specification) -> Specification:
    """A dot for each configuration, as a row of `table` has it."""
    marks, pairs = [], []
    for group in grouped(models, lambda one: one.placed.line).values():
        row = summed(group)
        if row.exceedances is None or row.bounded is None:
            continue
        pairs.append((row.exceedances, row.bounded))
        at = group[0].placed
        marks.append(
            (
                at,
                Mark(
                    at.series,
                    "dots",
                    "main",
                    np.array([max(row.exceedances, 0.05)]),
                    np.array([100 * row.bounded]),
                ),
            )
        )
    found = correlation(pairs)
    told = "Fewer than three configurations: no correlation."
    if found is not None:
        told = f"Pearson's correlation of both over {len(pairs)} configurations: {found:.2f}."
    return replace(base, panels=in_panels(layout, marks), notes=(*base.notes, told))


@dataclass(frozen=True)
class Summed:
    """The models of one configuration: one row of the papers' tables 4 and 5."""

    models: int
    exceedances: float | None
    """The mean number of bursts above the level that one is expected above."""
    bounded: float | None
    """The share of models with an end."""


def summed(group: Sequence[Modelled]) -> Summed:
    """The models of repeats, and of whatever else a configuration has, in one row."""
    chosen = [fit for one in group if (fit := one.chosen) is not None]
    bursts = [fit.bursts for fit in chosen if fit.bursts is not None]
    bounded = [fit.bounded for fit in chosen if fit.bounded is not None]
    return Summed(len(chosen), mean(bursts) if bursts else None, mean(bounded) if bounded else None)


def correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Pearson's correlation; None of fewer than three pairs, or where one side does not vary."""
    if len(pairs) < FEWEST or any(len(set(side)) < 2 for side in zip(*pairs, strict=True)):
        return None
    return float(np.corrcoef(np.array(pairs, float).T)[0, 1])


_DRAWN: dict[str, Callable[[Sequence[Modelled], Layout, Specification], Specification]] = {
    "stationarity": _stationarity,
    "divergence": partial(_over_thresholds, value=lambda fit: fit.divergence),
    "thresholds": _thresholds,
    "shape": _shape,
    "exceedances": _exceedances,
}
