"""The figures of causes for print: late packets over time, and what makes each percentile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter

from tailtap.analysis.causes.stored import Causes, shares
from tailtap.analysis.figures.curves import tick_label, ticks_between
from tailtap.show.report.causes import Story, used
from tailtap.show.report.causes.interactive import dots, edges_of
from tailtap.show.report.causes.palette import COLOURS
from tailtap.show.report.figures import TIMES, log_ticks, panels

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
    beside = 2 if len(told) == 1 else 5
    more = 0.13 * -(-len(names) // beside)
    figure, grid = panels([label for label, _ in told], x, y, (2.2, 0.35, 1.6), more=more)
    for axes, (_, causes) in zip(grid, told, strict=True):
        draw(axes, causes)
    handles = [
        Line2D([], [], color=COLOURS[name].light, marker="o", markersize=3.5, linestyle="none")
        for name in names
    ]
    figure.legend(handles, names, loc="outside upper left", ncols=beside,
                  borderaxespad=0.2, labelspacing=0.25, handletextpad=0.2)  # fmt: skip
    return figure
