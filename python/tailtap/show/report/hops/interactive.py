"""The interactive figures of hops: Bokeh models without colours, which the page gives them.

A bar carries the tag ``hop``: by it the page's script finds its colour among those of the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from bokeh.models import (
    AllLabels,
    ColumnDataSource,
    FixedTicker,
    HoverTool,
    Quad,
    Range1d,
    Scatter,
    Segment,
)
from bokeh.models import Line as LineGlyph

from tailtap.analysis.runs.text import time_text
from tailtap.show.report.hops import Colour, Line
from tailtap.show.report.plots import bare_plot, tick_format, use_tools

DASHES: dict[str, list[int]] = {"p50": [], "p99": [9, 3], "p99.9": [4, 3], "max": [2, 2]}
"""The lines of percentiles."""
KINDS = ("hops", "hop-packets")
MOST_LABELS = 16
"""Nodes that an axis has room to name."""
HALF = 0.42
"""Of a bar's width, in packets."""
Figure = tuple[str, str, int, Any]
"""Kind, title, configuration and Bokeh model of a figure."""


def colours_of(lines: Sequence[Line]) -> list[Colour]:
    """The colours of bars, by which tags name them."""
    return list(dict.fromkeys(colour for line in lines for colour in line.colours))


def figures(lines: Sequence[Line]) -> Iterator[Figure]:
    """The figures of each line: percentiles by node, and the worst packets by node."""
    colours = colours_of(lines)
    for line in lines:
        yield "hops", line.member.label, line.place, _percentiles(line)
        if line.shown.size:
            yield "hop-packets", line.member.label, line.place, _packets(line, colours)


def labelled(nodes: Sequence[str]) -> dict[float, str]:
    """The nodes that an axis names, by their places from 1."""
    step = -(-len(nodes) // MOST_LABELS)
    return {float(place): node for place, node in enumerate(nodes, 1) if (place - 1) % step == 0}


def _percentiles(line: Line) -> Any:
    every = [row.value for rows in line.percentiles.values() for row in rows]
    count = len(line.nodes)
    plot = bare_plot(
        Range1d(start=0.6, end=count + 0.4),
        Range1d(start=max(1, min(every)) * 0.7, end=max(every) * 1.4),
        log=(False, True),
        height=280,
    )
    below, left = plot.below[0], plot.left[0]
    names = labelled(line.nodes)
    below.ticker = FixedTicker(ticks=list(names), minor_ticks=[])
    below.major_label_overrides = names
    below.major_label_policy = AllLabels()
    below.axis_label, left.axis_label = "Node", "Time for the hop"
    left.formatter = tick_format("time")
    x = np.arange(1, count + 1)
    marks = []
    for name, rows in line.percentiles.items():
        y = np.array([max(row.value, 1) for row in rows], float)
        known = [(place, row) for place, row in enumerate(rows, 1)
                 if row.low is not None and row.high is not None]  # fmt: skip
        if known:
            data = {
                "x": [place for place, _ in known],
                "low": [max(row.low or 1, 1) for _, row in known],
                "high": [row.high for _, row in known],
            }
            _mark(plot, line, "line", data, Segment(x0="x", x1="x", y0="low", y1="high"))
        glyph = LineGlyph(x="x", y="y", line_width=1.5, line_dash=DASHES[name])
        _mark(plot, line, "line", {"x": x, "y": y}, glyph)
        told = [
            f"{node}: {name} {time_text(row.value)}"
            for node, row in zip(line.nodes, rows, strict=True)
        ]
        dots = Scatter(x="x", y="y", size=6 if count <= MOST_LABELS else 4, marker="circle")
        marks.append(_mark(plot, line, "point", {"x": x, "y": y, "told": told}, dots))
    use_tools(plot, HoverTool(renderers=marks, limit=3, tags=["hops"]), "both")
    return plot


def _packets(line: Line, colours: Sequence[Colour]) -> Any:
    """A bar for each packet, in which each hop has its share."""
    count = line.shown.size
    totals = line.times.sum(axis=1)
    plot = bare_plot(
        Range1d(start=0.4, end=count + 0.6),
        Range1d(start=0, end=int(totals.max()) * 1.05),
        log=(False, False),
        height=280,
    )
    below, left = plot.below[0], plot.left[0]
    below.ticker = FixedTicker(ticks=[1, *range(5, count + 1, 5)], minor_ticks=[])
    below.axis_label, left.axis_label = "The worst packets, the worst first", "Latency"
    left.formatter = tick_format("time")
    x = np.arange(1, count + 1)
    edges = np.column_stack((np.zeros(count, np.int64), np.cumsum(line.times, axis=1)))
    keys = [line.member.run.stored.worst_packets.key[place] for place in line.shown.tolist()]
    marks = []
    for hop, (node, colour) in enumerate(zip(line.nodes, line.colours, strict=True)):
        told = [
            f"{node}: {time_text(ns)} of {time_text(total)}, packet {key}"
            for ns, total, key in zip(
                line.times[:, hop].tolist(), totals.tolist(), keys, strict=True
            )
        ]
        data = {"left": x - HALF, "right": x + HALF, "bottom": edges[:, hop].astype(float),
                "top": edges[:, hop + 1].astype(float), "told": told}  # fmt: skip
        glyph = Quad(left="left", right="right", bottom="bottom", top="top", line_color=None)
        mark = _mark(plot, line, "bar", data, glyph)
        mark.tags[0]["hop"] = colours.index(colour)
        marks.append(mark)
    use_tools(plot, HoverTool(renderers=marks, limit=1, tags=["hops"]), "width")
    return plot


def _mark(plot: Any, line: Line, role: str, data: dict[str, Any], glyph: Any) -> Any:
    renderer = plot.add_glyph(ColumnDataSource(data), glyph)
    renderer.tags = [{"run": line.member.index, "role": role}]
    return renderer
