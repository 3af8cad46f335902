"""The figures of hops for print: percentiles by node, and the worst packets by node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator, NullLocator

from tailtap.show.report.figures import TIMES, log_ticks, panels
from tailtap.show.report.hops import Line
from tailtap.show.report.hops.interactive import HALF, MOST_LABELS, labelled

LEGEND_ROOM = 1.4
"""How much higher than the highest bar an axis reaches, so that none lies under the legend."""
STYLES: dict[str, Any] = {"p50": "-", "p99": (0, (5, 1.6)), "p99.9": (0, (2.2, 1.4)), "max": ":"}


def hop_figures(lines: Sequence[Line]) -> Mapping[str, Callable[[], Figure]]:
    """The figures by their names; none without lines."""
    packets = [line for line in lines if line.shown.size]
    found: dict[str, Callable[[], Figure]] = {}
    if lines:
        found["hops"] = partial(percentiles_figure, lines)
    if packets:
        found["hop-packets"] = partial(packets_figure, packets)
    return found


def percentiles_figure(lines: Sequence[Line]) -> Figure:
    """The percentiles of each hop with their intervals, one panel for each line."""

    def draw(axes: Any, line: Line) -> None:
        x = np.arange(1, len(line.nodes) + 1)
        for name, rows in line.percentiles.items():
            y = [max(row.value, 1) for row in rows]
            axes.plot(x, y, color=line.group.light, linestyle=STYLES[name], linewidth=0.9,
                      marker="o", markersize=2.2 if len(x) <= MOST_LABELS else 0.9)  # fmt: skip
            known = [(place, row.low, row.high) for place, row in enumerate(rows, 1)
                     if row.low is not None and row.high is not None]  # fmt: skip
            if known:
                places, low, high = zip(*known, strict=True)
                axes.vlines(places, low, high, color=line.group.light, linewidth=0.9)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(TIMES)
        log_ticks(axes.yaxis)
        names = labelled(line.nodes)
        axes.xaxis.set_major_locator(FixedLocator(list(names)))
        axes.xaxis.set_major_formatter(FixedFormatter(list(names.values())))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.tick_params(axis="x", labelrotation=35 if len(line.nodes) > 6 else 0)

    figure, _ = _panels(lines, draw, "Node", "Time for the hop")
    told = {name for line in lines for name in line.percentiles}
    names = [name for name in STYLES if name in told]
    handles = [Line2D([], [], color="#555", linestyle=STYLES[name], linewidth=1) for name in names]
    figure.legend(handles, names, loc="outside upper left", ncols=4, borderaxespad=0.2)
    return figure


def packets_figure(lines: Sequence[Line]) -> Figure:
    """A bar for each of the worst packets, in which each hop has its share."""

    def draw(axes: Any, line: Line) -> None:
        x = np.arange(1, line.shown.size + 1)
        bottom = np.zeros(line.shown.size, np.int64)
        for hop, colour in enumerate(line.colours):
            axes.bar(x, line.times[:, hop], 2 * HALF, bottom, color=colour.light, linewidth=0)
            bottom = bottom + line.times[:, hop]
        axes.yaxis.set_major_formatter(TIMES)
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.set_xlim(0.4, line.shown.size + 0.6)
        axes.set_ylim(0, int(bottom.max()) * LEGEND_ROOM)
        axes.grid(axis="x", visible=False)
        axes.set_axisbelow(True)

    figure, drawn = _panels(lines, draw, "The worst packets, the worst first", "Latency")
    for axes, line in zip(drawn, lines, strict=True):
        patches = [Patch(color=colour.light, label=node) for node, colour in line.legend]
        axes.legend(handles=patches, loc="upper right", ncols=2, handlelength=0.8,
                    labelspacing=0.25, columnspacing=0.8)  # fmt: skip
    return figure


def _panels(
    lines: Sequence[Line], draw: Callable[[Any, Line], None], x: str, y: str
) -> tuple[Figure, list[Any]]:
    """One panel for each line, on axes of its own."""
    figure, grid = panels([line.group.title for line in lines], x, y, (2.4, 0.5, 1.8))
    for axes, line in zip(grid, lines, strict=True):
        draw(axes, line)
    return figure, grid
