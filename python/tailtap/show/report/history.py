"""The page of a history: each series as a figure and a table, in one file that needs no network."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import tailtap
from tailtap.analysis.runs.text import time_text
from tailtap.base.files import drafted, make_folder
from tailtap.base.writing import writing
from tailtap.records.compare import HistoryRecord, Point, Series
from tailtap.show.report.page import packaged
from tailtap.show.sections.comparison import changes_table
from tailtap.show.sections.renderers import templates

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 1000, 260, 70, 12, 12, 26
STEPS = (1, 2, 5)
"""Of each decade, what the axis of latencies labels."""


@dataclass(frozen=True)
class Figure:
    """A series over commits, on a logarithmic axis of latencies; places are in its own space."""

    series: Series

    @cached_property
    def ends(self) -> tuple[float, float]:
        """The logarithms of the lowest and the highest latency that it has room for."""
        points = self.series.points
        known = [value for one in points for value in (one.value, one.low, one.high) if value]
        low, high = math.log10(min(known, default=1)), math.log10(max(known, default=10))
        return low - 0.05, max(high, low + 0.05) + 0.05

    def x(self, place: float) -> float:
        """Where a commit is."""
        room = (WIDTH - LEFT - RIGHT) / len(self.series.points)
        return round(LEFT + room * (place + 0.5), 1)

    def y(self, value: float) -> float:
        """Where a latency is."""
        low, high = self.ends
        share = (math.log10(max(value, 1)) - low) / (high - low)
        return round(HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * share, 1)

    @property
    def ticks(self) -> list[int]:
        """The latencies that are labelled."""
        low, high = self.ends
        decades = range(math.floor(low), math.ceil(high))
        every = (step * 10**decade for decade in decades for step in STEPS)
        return [tick for tick in every if 10**low <= tick <= 10**high]

    @property
    def levels(self) -> Iterator[tuple[int, int, int]]:
        """Between two changes the first commit, the one behind the last, and their median."""
        points = self.series.points
        ends = [0, *(mark.place for mark in self.series.marks), len(points)]
        for start, end in itertools.pairwise(ends):
            values = sorted(one.value for one in points[start:end] if one.value is not None)
            if values:
                yield start, end, values[len(values) // 2]


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
        figures=[Figure(series) for series in found.series],
        told=told,
        changes=changes_table,
        size=(WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM),
        style=packaged("page.css"),
        time=time_text,
        version=tailtap.__version__,
    )


def told(point: Point) -> str:
    """What a pointer that rests on a commit reads."""
    value = "unknown: packets were lost" if point.value is None else time_text(point.value)
    between = ""
    if point.low is not None and point.high is not None:
        between = f" ({time_text(point.low)} to {time_text(point.high)})"
    return f"{point.commit[:12]}, {point.date[:10]}: {value}{between}, {point.runs} runs"
