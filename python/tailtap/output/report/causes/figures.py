"""The figures of causes for print: late packets over time, and what makes each percentile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter

from tailtap.analysis.causes.shares import shares
from tailtap.analysis.causes.stored import Causes
from tailtap.analysis.figures.curves import tick_label, ticks_between
from tailtap.analysis.runs.text import broken
from tailtap.output.report.causes import Story
from tailtap.output.report.causes.interactive import dots, edges_of
from tailtap.output.report.causes.palette import COLOURS
from tailtap.output.report.causes.tables import used
from tailtap.output.report.figures import COLUMN, PANEL_LETTERS, TIMES, WIDTH, log_ticks

Told = tuple[str, Causes]
"""What a panel is called, and its causes."""


def cause_figures(stories: Sequence[Story]) -> Mapping[str, Callable[[], Figure]]:
    """The figures of the runs that are drawn, by their names; none without such runs."""
    told = [(one.group.title, one.causes) for one in stories if one.drawn and one.causes]
    if not told:
        return {}
    names = list(used(stories))
    return {
        "causes": partial(causes_figure, told, names),
        "shares": partial(shares_figure, told, names),
    }


def causes_figure(told: Sequence[Told], names: Sequence[str]) -> Figure:
    """Late packets over time in the colours of their causes, one panel for each run."""

    def draw(axes: Any, causes: Causes) -> None:
        for cause, data in dots(causes).items():
            axes.plot(data["x"], data["y"], ".", color=COLOURS[cause].light, markersize=2.6,
                      markeredgewidth=0, alpha=0.8, rasterized=True)  # fmt: skip
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(TIMES)
        log_ticks(axes.yaxis)

    return _panels(told, names, draw, "Time since the first packet (s)", "Latency")


def shares_figure(told: Sequence[Told], names: Sequence[str]) -> Figure:
    """Of the packets above each percentile, the share of delay by cause."""

    def draw(axes: Any, causes: Causes) -> None:
        found = shares(causes)
        x = edges_of(found)
        layers = [COLOURS[cause].light for cause in found.by_cause]
        parts = [np.append(part, part[-1]) for part in found.by_cause.values()]
        axes.stackplot(x, parts, colors=layers, linewidth=0, step="post")
        axes.set_xscale("log")
        axes.set_xlim(x[0], x[-1])
        axes.set_ylim(0, 1)
        axes.yaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
        ticks = ticks_between(float(x[0]), float(x[-1]))
        axes.xaxis.set_major_locator(FixedLocator(ticks))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda tick, _: tick_label(tick)))
        axes.xaxis.set_minor_locator(NullLocator())

    return _panels(told, names, draw, "Percentile", "Share of the delay above it")


def _panels(
    told: Sequence[Told], names: Sequence[str], draw: Callable[[Any, Causes], None], x: str, y: str
) -> Figure:
    """One panel for each run, and a legend of the causes."""
    columns = {1: 1, 2: 2, 4: 2}.get(len(told), 3)
    rows = -(-len(told) // columns)
    width = COLUMN if columns == 1 else WIDTH
    lines = -(-len(names) // (2 if columns == 1 else 5))
    height = (2.2 if columns == 1 else 0.35 + 1.6 * rows) + 0.13 * lines
    figure = Figure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes, one in zip(grid.flat, [*told, *[None] * (grid.size - len(told))], strict=True):
        if one is None:
            axes.set_axis_off()
            continue
        label, causes = one
        draw(axes, causes)
        axes.set_title(broken(label, round(PANEL_LETTERS * width / columns)), loc="left", pad=3)
    figure.supxlabel(x, fontsize=7)
    figure.supylabel(y, fontsize=7)
    handles = [
        Line2D([], [], color=COLOURS[name].light, marker="o", markersize=3.5, linestyle="none")
        for name in names
    ]
    figure.legend(handles, names, loc="outside upper left", ncols=2 if columns == 1 else 5,
                  borderaxespad=0.2, labelspacing=0.25, handletextpad=0.2)  # fmt: skip
    return figure
