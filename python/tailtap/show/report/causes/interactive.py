"""The interactive figures of causes: Bokeh models, which the page's script fills and colours.

A mark carries the tag ``cause``: by it `causes.js` gives it the colour of `palette`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from bokeh.models import (
    AllLabels,
    ColumnDataSource,
    FixedTicker,
    HoverTool,
    NumeralTickFormatter,
    Quad,
    Range1d,
    Scatter,
    Text,
)
from bokeh.models.annotations import BoxAnnotation

from tailtap.analysis.causes.stored import Causes, Shares, shares
from tailtap.analysis.figures.curves import tick_label, ticks_between
from tailtap.analysis.runs.groups import Member
from tailtap.analysis.runs.text import count_text, percent_text, share_text
from tailtap.show.report.causes import Story
from tailtap.show.report.causes.timeline import PACKETS
from tailtap.show.report.plots import bare_plot, tick_format, use_tools

MOST_DOTS = 5_000
"""Late packets of a run that the figure shows, the worst first."""
LANE_PX, PACKETS_LANES = 30, 3
"""The height of a lane, and in such heights that of the late packets."""
Figure = tuple[str, str, int, Any]
"""Kind, title, configuration and Bokeh model of a figure."""


def figures(stories: Sequence[Story], timelines: Mapping[int, Any]) -> Iterator[Figure]:
    """The figures of the stories that are drawn; `timelines` are by the run's number."""
    for story in stories:
        if story.drawn and story.causes is not None:
            title, member = story.member.label, story.member
            yield "causes", title, story.place, _worst(story.causes, member)
            yield "shares", title, story.place, _shares(shares(story.causes), member)
            lanes = timelines[member.index]["lanes"]
            yield "timeline", title, story.place, _timeline(lanes, member)


def dots(causes: Causes) -> dict[str, dict[str, Any]]:
    """For each cause, the worst late packets that are due to it: seconds, ns, and what is told."""
    ingress, latency = (causes.column("late", name) for name in ("ingress_ns", "latency_ns"))
    first = causes.run.stored.inputs.ingress.first_ns
    kept = np.sort(np.argsort(-latency, kind="stable")[:MOST_DOTS])
    columns = [causes.late[name].to_pylist() for name in ("blamed", "detail", "state")]
    found: dict[str, dict[str, Any]] = {}
    for at in kept.tolist():
        blamed, detail, state = (column[at] for column in columns)
        data = found.setdefault(blamed, {"x": [], "y": [], "told": []})
        data["x"].append((int(ingress[at]) - first) / 1e9)
        data["y"].append(int(latency[at]))
        told = f"{blamed}: {detail}" if detail else blamed
        data["told"].append(f"{told} (behind a stall)" if state == "behind" else told)
    return dict(sorted(found.items(), key=lambda item: -len(item[1]["x"])))


def _worst(causes: Causes, member: Member) -> Any:
    latency = causes.column("late", "latency_ns")
    plot = bare_plot(
        Range1d(start=0, end=member.evaluation.duration * 1.01),
        Range1d(start=int(latency.min()) * 0.9, end=int(latency.max()) * 1.3),
        log=(False, True),
        height=280,
    )
    plot.below[0].axis_label, plot.left[0].axis_label = "Time", "Latency"
    plot.below[0].formatter, plot.left[0].formatter = tick_format("seconds"), tick_format("time")
    marks = []
    for cause, data in dots(causes).items():
        glyph = Scatter(x="x", y="y", size=5, marker="circle", line_color=None, fill_alpha=0.75)
        marks.append(_mark(plot, member, data, glyph, cause))
    use_tools(plot, HoverTool(renderers=marks, limit=3, tags=["causes"]), "both")
    return plot


def edges_of(found: Shares) -> Any:
    """Where the bars of percentiles begin, as x = 1/(1-p), and where the last one ends: it is as
    wide as the others on a logarithmic axis."""
    x = 1 / (1 - found.p)
    step = (x[-1] / x[0]) ** (1 / (x.size - 1)) if x.size > 1 else 1.5
    return np.append(x, x[-1] * step)


def _shares(found: Shares, member: Member) -> Any:
    """Bars over the percentile: each tells of the packets above the percentile where it begins."""
    edges = edges_of(found)
    x, right = edges[:-1], edges[1:]
    plot = bare_plot(
        Range1d(start=x[0], end=right[-1]), Range1d(start=0, end=1), log=(True, False), height=280
    )
    below, left = plot.below[0], plot.left[0]
    labelled = ticks_between(float(x[0]), float(right[-1]))
    below.ticker = FixedTicker(ticks=labelled, minor_ticks=[])
    below.major_label_overrides = {tick: tick_label(tick) for tick in labelled}
    below.axis_label, left.axis_label = "Percentile", "Share of the delay above it"
    left.formatter = NumeralTickFormatter(format="0 %")
    base = np.zeros(x.size)
    marks = []
    for cause, share in found.by_cause.items():
        told = [
            f"{share_text(float(part))} of the delay of the {count_text(above)} packets above "
            f"{percent_text(float(p))}"
            for part, above, p in zip(share, found.above.tolist(), found.p, strict=True)
        ]
        data = {"left": x, "right": right, "bottom": base, "top": base + share, "told": told}
        glyph = Quad(left="left", right="right", bottom="bottom", top="top", line_color=None)
        marks.append(_mark(plot, member, data, glyph, cause))
        base = base + share
    use_tools(plot, HoverTool(renderers=marks, limit=1, tags=["shares"]), "width")
    return plot


def _timeline(lanes: Sequence[str], member: Member) -> Any:
    """Lanes without anything in them: the page's script puts in what lies around a packet."""
    height = sum(PACKETS_LANES if lane == PACKETS else 1 for lane in lanes)
    plot = bare_plot(
        Range1d(start=0, end=1),
        Range1d(start=-height, end=0),
        log=(False, False),
        height=LANE_PX * height + 60,
    )
    middles = lane_middles(lanes)
    left, below = plot.left[0], plot.below[0]
    left.ticker = FixedTicker(ticks=middles, minor_ticks=[])
    left.major_label_overrides = dict(zip(middles, lanes, strict=True))
    left.major_label_policy = AllLabels()
    below.axis_label = "Time since the packet came to the device"
    below.formatter = tick_format("time")
    stay: Any = BoxAnnotation(
        left=0, right=0, line_width=1.5, fill_alpha=0.1, tags=["stay"], level="underlay"
    )
    plot.add_layout(stay)
    empty: dict[str, list[Any]] = {
        name: [] for name in ("left", "right", "bottom", "top", "colour", "alpha", "name", "told")
    }
    glyph = Quad(left="left", right="right", bottom="bottom", top="top", fill_color="colour",
                 fill_alpha="alpha", line_color=None)  # fmt: skip
    mark = _mark(plot, member, empty, glyph, None, "slices")
    text = Text(x="x", y="y", text="text", text_font_size="11px", text_baseline="middle",
                text_color="colour")  # fmt: skip
    _mark(plot, member, {"x": [], "y": [], "text": [], "colour": []}, text, None, "labels")
    use_tools(plot, HoverTool(renderers=[mark], limit=2, tags=["timeline"]), "width")
    return plot


def lane_middles(lanes: Sequence[str]) -> list[float]:
    """The middle of each lane, from the top (0) down."""
    middles, at = [], 0.0
    for lane in lanes:
        height = PACKETS_LANES if lane == PACKETS else 1
        middles.append(at - height / 2)
        at -= height
    return middles


def _mark(
    plot: Any, member: Member, data: Any, glyph: Any, cause: str | None, role: str = "cause"
) -> Any:
    renderer = plot.add_glyph(ColumnDataSource(data), glyph)
    renderer.tags = [{"run": member.index, "role": role, "cause": cause}]
    return renderer
