"""A figure as a specification: panels, marks and axes, from which page and print are drawn.

Columns are in the base units of their axis: ns, s, packets. Nothing here draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from tailtap.analysis.figures.curves import ticks_between, ticks_of_percentiles
from tailtap.analysis.figures.kinds import FLOOR, Axis
from tailtap.analysis.figures.quantities import SECONDS, SHARE, TAIL, TIME
from tailtap.analysis.runs.run import Floats
from tailtap.analysis.verdict.requirement import Requirement

Role = Literal["main", "repeat", "before", "published", "undisturbed", "hollow"]
Form = Literal["line", "area", "dots", "points", "bars", "boxes", "spread", "span"]
DASHES: tuple[tuple[float, ...], ...] = ((), (9, 3), (4, 3), (9, 3, 2, 3), (2, 2), (14, 3))
"""Lines of the repeats of one configuration, in pixels of a line two pixels wide."""
UNDISTURBED = (8, 3, 2, 3)
"""Those of a run without pauses from outside, which no repeat has."""
BEFORE = "#8a929a"
"""The colour of what is before the device, and of rulers."""
BEFORE_DARK = "#7d8791"


@dataclass(frozen=True)
class Mark:
    """What is drawn of a run, or of several, in the colour of a series."""

    series: int
    form: Form
    role: Role
    x: Floats
    """Of boxes their left sides; of spans the begin and the end of each, in turn."""
    y: Floats
    low: Floats | None = None
    """Of values the low ends of their intervals, of areas and boxes the lower sides."""
    high: Floats | None = None
    right: Floats | None = None
    supported: int | None = None
    """So many corners stand on ten packets or more; None where all do."""
    run: str = ""
    test: str = ""
    """Which of several things in one colour it is, told by the form of its dots."""
    member: int = -1
    """The run that it is shown and hidden with, by its number on the page."""
    dash: int = 0
    told: Sequence[str] = ()
    """What a pointer that rests on each place reads."""

    @property
    def sides(self) -> tuple[Floats, Floats, Floats, Floats]:
        """The left, right, lower and upper sides of boxes."""
        assert self.right is not None and self.low is not None and self.high is not None
        return self.x, self.right, self.low, self.high

    @property
    def abutting(self) -> bool:
        """Whether boxes stand side by side, with no room between them."""
        return self.right is not None and bool(np.array_equal(self.right[:-1], self.x[1:]))

    @property
    def corners(self) -> tuple[Floats, Floats, Floats]:
        """Boxes that stand side by side as an area with steps: x, lower and upper side."""
        left, right, low, high = self.sides
        x, low, high = (
            np.append(side, last[-1:]).repeat(2)
            for side, last in ((left, right), (low, low), (high, high))
        )
        return x[1:], low[:-1], high[:-1]


@dataclass(frozen=True)
class Series:
    """What has a colour: on white paper, and on a dark page."""

    label: str
    light: str
    dark: str
    dash: int = 0
    thin: bool = False
    """Whether its lines are thin: others measured it."""


@dataclass(frozen=True)
class Entry:
    """A line of a legend."""

    label: str
    light: str
    form: Form
    dash: int = 0
    thin: bool = False
    test: int = 0
    role: Role = "main"


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    row: int
    column: int
    marks: tuple[Mark, ...]
    place: int = -1
    """Its configuration, by its number on the page."""
    x: Axis | None = None
    """Its own axes, where they are not those of the figure."""
    y: Axis | None = None
    legend: tuple[Entry, ...] = ()
    empty: str = "no run"
    """What stands in it when there is nothing else."""


@dataclass(frozen=True)
class Grid:
    """A table: of a figure, or beside one."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    data_heads: tuple[str, ...] = ()
    """The heads of its file, with units, where that has numbers instead of words."""
    data: tuple[tuple[object, ...], ...] = ()


@dataclass(frozen=True)
class Specification:
    """A figure that can be drawn."""

    name: str
    title: str
    x: Axis
    y: Axis
    panels: tuple[Panel, ...] = ()
    series: tuple[Series, ...] = ()
    legend: tuple[Entry, ...] = ()
    common: str = "xy"
    """Which axes all panels have in common."""
    categories: tuple[str, ...] = ()
    """What stands at 0, 1, 2 … where x is no number."""
    measured: tuple[float, ...] = ()
    """The few values of x at which something was measured."""
    notes: tuple[str, ...] = ()
    """Sentences about what is shown, and what is not."""
    tables: tuple[Grid, ...] = ()
    tests: tuple[str, ...] = ()
    """What the forms of dots stand for."""
    required: tuple[Requirement, ...] = ()
    """Requirements that are drawn as lines."""
    rulers: Mapping[float, str] | None = None
    """Heights at which a dotted line lies, and what is written at its end."""
    wide: bool = False
    """Whether it is as wide as a page in print, also with panels below each other alone."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of panels."""
        rows = max((panel.row for panel in self.panels), default=-1) + 1
        return rows, max((panel.column for panel in self.panels), default=-1) + 1

    def axes(self, panel: Panel) -> tuple[Axis, Axis]:
        """The axes of a panel with their ends, which are None where nothing is on them."""
        return self._ended("x", panel), self._ended("y", panel)

    def _ended(self, name: str, panel: Panel) -> Axis:
        axis: Axis = getattr(panel, name) or getattr(self, name)
        if self.categories and name == "x":
            return axis.between(-0.6, len(self.categories) - 0.4)
        values = np.concatenate(
            [np.zeros(0), *self._values(name, self.panels if name in self.common else (panel,))]
        )
        values = values[np.isfinite(values)]
        if name == "y" and axis.quantity in (TIME, SHARE):
            limits = [float(wanted.limit) for wanted in self.required]
            values = np.append(values, limits)
        return _extended(axis, values, from_zero=name == "y" or axis.quantity is SECONDS)

    def _values(self, name: str, panels: Sequence[Panel]) -> Iterator[Floats]:
        for panel in panels:
            for mark in panel.marks:
                if mark.form == "span":
                    continue
                sides = (mark.x, mark.right) if name == "x" else (mark.y, mark.low, mark.high)
                yield from (np.asarray(side, float) for side in sides if side is not None)


def _extended(axis: Axis, values: Floats, *, from_zero: bool) -> Axis:
    """An axis with the ends that values give it where it has none of its own."""
    over = values[values > 0]
    if axis.log and not over.size:
        axis = replace(axis, log=False, low=None)
    if not values.size:
        return axis
    low, high = float(values.min()), float(values.max())
    if axis.log:
        low = float(over.min())
        if axis.quantity is TAIL:
            return axis.between(max(low, 1.0), high * 1.1)
        if axis.low == FLOOR:
            return axis.between(FLOOR, high * 2)
        margin = max((high / low) ** 0.06, 1.15)
        return axis.between(low / margin, high * margin)
    spread = high - low or 1.0
    if not from_zero:
        return axis.between(low - 0.05 * spread, high + 0.05 * spread)
    if low < 0:
        return axis.between(low - 0.1 * spread, high + 0.1 * spread)
    return axis.between(0.0, (high or 1.0) * (1.02 if axis.quantity is SECONDS else 1.08))


def percentile_ticks(axis: Axis) -> list[float]:
    """What is labelled on an axis of percentiles."""
    low, high = axis.low or 1.0, axis.high or 10.0
    ticks = ticks_of_percentiles(high) if low <= 1 else ticks_between(low, high)
    return [tick for tick in ticks if low <= tick <= high]


def in_rows(number: int) -> list[tuple[int, int]]:
    """Rows and columns of so many panels: three beside each other at most."""
    columns = {1: 1, 2: 2, 4: 2}.get(number, 3)
    return [divmod(place, columns) for place in range(number)]
