"""The page of a history: each series as a figure and a table, in one file that needs no network."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import tailtap
from tailtap.analysis.runs.text import time_text
from tailtap.base.files import drafted, make_folder
from tailtap.base.writing import writing
from tailtap.records.compare import HistoryRecord, Mark, Point, Series
from tailtap.show.report.page import packaged
from tailtap.show.sections.comparison import changes_table
from tailtap.show.sections.renderers import templates

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 1000, 260, 70, 12, 12, 26
STEPS = (1, 2, 5)
"""Of each decade, what the axis of latencies labels."""


@dataclass(frozen=True)
class Dot:
    """A commit in a figure; `top` and `foot` are the ends of its interval."""

    x: float
    y: float | None
    top: float | None
    foot: float | None
    told: str


@dataclass(frozen=True)
class Line:
    """A line across a figure, and what stands at it."""

    x1: float
    y1: float
    x2: float
    y2: float
    text: str = ""


@dataclass(frozen=True)
class Figure:
    """A series, drawn; coordinates are those of the figure's own space."""

    series: Series
    dots: Sequence[Dot]
    levels: Sequence[Line]
    grid: Sequence[Line]
    marks: Sequence[tuple[Line, Mark]]
    first: str
    last: str


def write_history(found: HistoryRecord, file: Path) -> None:
    """Write the page. Raises `MachineError` when it cannot be written."""
    with writing(file, "give another file by --page"):
        make_folder(file.parent)
        with drafted(file) as draft:
            draft.write(page(found).encode("utf-8", "backslashreplace"))


def page(found: HistoryRecord) -> str:
    """The page as HTML."""
    template = templates("tailtap.show.report").get_template("history.html.j2")
    return template.render(
        found=found,
        figures=[drawn(series) for series in found.series],
        changes=changes_table,
        size=(WIDTH, HEIGHT, LEFT, RIGHT),
        style=packaged("page.css"),
        time=time_text,
        version=tailtap.__version__,
    )


def drawn(series: Series) -> Figure:
    """The figure of a series: latency on a logarithmic axis over commits."""
    points = series.points
    known = [value for one in points for value in (one.value, one.low, one.high) if value]
    low, high = math.log10(min(known, default=1)), math.log10(max(known, default=10))
    low, high = low - 0.05, max(high, low + 0.1) + 0.05

    def x(place: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * (place + 0.5) / len(points), 1)

    def y(value: int | float | None) -> float | None:
        if value is None:
            return None
        share = (math.log10(max(value, 1)) - low) / (high - low)
        return round(HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * share, 1)

    def level(start: int, end: int) -> Iterator[Line]:
        values = sorted(one.value for one in points[start:end] if one.value is not None)
        height = y(values[len(values) // 2]) if values else None
        if height is not None:
            yield Line(x(start - 0.4), height, x(end - 0.6), height)

    ends = [0, *(mark.place for mark in series.marks), len(points)]
    decades = range(math.floor(low), math.ceil(high))
    ticks = [step * 10**decade for decade in decades for step in STEPS]
    heights = [(tick, y(tick)) for tick in ticks if 10**low <= tick <= 10**high]
    return Figure(
        series,
        [
            Dot(x(n), y(one.value), y(one.high), y(one.low), _told(one))
            for n, one in enumerate(points)
        ],
        [line for start, end in itertools.pairwise(ends) for line in level(start, end)],
        [
            Line(LEFT, height, WIDTH - RIGHT, height, time_text(tick))
            for tick, height in heights
            if height is not None
        ],
        [
            (Line(x(mark.place - 0.5), TOP, x(mark.place - 0.5), HEIGHT - BOTTOM), mark)
            for mark in series.marks
        ],
        points[0].commit[:12],
        points[-1].commit[:12],
    )


def _told(point: Point) -> str:
    value = "unknown: packets were lost" if point.value is None else time_text(point.value)
    between = ""
    if point.low is not None and point.high is not None:
        between = f" ({time_text(point.low)} to {time_text(point.high)})"
    return f"{point.commit[:12]}, {point.date[:10]}: {value}{between}, {point.runs} runs"
