"""The interactive figures: Bokeh models without colours, which the page gives them.

Every mark carries the tag `{"run": index, "role": …}`: by it the page's script colours the mark
in light and dark, and shows or hides it with its run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from bokeh.document import Document
from bokeh.models import (
    AllLabels,
    ColumnDataSource,
    CrosshairTool,
    FixedTicker,
    HoverTool,
    Line,
    NumeralTickFormatter,
    Range1d,
    Scatter,
    VArea,
)
from bokeh.models.annotations import Span

from tailtap.analysis.evaluation import Histogram
from tailtap.analysis.evaluation.flows import HEAVY_LOSS
from tailtap.analysis.evaluation.model import SIDES
from tailtap.analysis.figures.curves import (
    bins_per_decade,
    confidence_band,
    curve_of,
    log_histogram,
    outline,
    tick_label,
    ticks_of_percentiles,
)
from tailtap.analysis.runs.groups import Configuration, Member
from tailtap.analysis.runs.run import Floats, Integers
from tailtap.analysis.runs.text import rate_text, share_text
from tailtap.show.report.bursts import lossy, marks, ticks
from tailtap.show.report.loss import LossCurve, axes_of, loss_curves
from tailtap.show.report.plots import bare_plot, tick_format, use_tools
from tailtap.show.report.readings import moments
from tailtap.show.report.undisturbed import DASH_DOT

DASHES: tuple[list[int], ...] = ([], [9, 3], [4, 3], [9, 3, 2, 3], [2, 2], [14, 3])
"""Lines of the repeats of one configuration."""
COUNT_FLOOR = 0.7
"""Where an empty bin lies on a logarithmic axis of counts."""


@dataclass(frozen=True)
class Panel:
    """One figure: the section and the configuration it belongs to, and its Bokeh root.

    Without a root there is nothing to draw.
    """

    kind: str
    title: str
    configuration: int | None
    root: str = ""


def build(
    groups: Sequence[Configuration], more: Iterable[tuple[str, str, int, Any]] = ()
) -> tuple[dict[str, Any], list[Panel]]:
    """The Bokeh document of all figures as JSON, and what each of its roots is.

    `more` are figures that were made elsewhere: kind, title, configuration and plot.
    """
    document = Document()
    panels: list[Panel] = []

    def add(kind: str, title: str, place: int | None, plot: Any) -> None:
        document.add_root(plot)
        panels.append(Panel(kind, title, place, plot.id))

    members = [member for group in groups for member in group.members]
    makers = (("worst", _Worst), ("gaps", _Gaps), ("rates", _Rates), ("latency", _Latency))
    losing = lossy(groups)
    with document.models.freeze():  # otherwise Bokeh walks through all models for each root
        if any(group.shows("hdr") for group in groups):
            add("hdr", "HDR diagram", None, _hdr(members))
        else:
            panels.append(Panel("hdr", "HDR diagram", None))
        if curves := loss_curves(groups):
            add("loss", "Loss against rate", None, _loss(curves))
        for kind, make in makers:
            maker = make(members)
            for place, group in enumerate(groups):
                if group.shows(kind):
                    add(kind, group.title, place, maker.plot(group))
                else:
                    panels.append(Panel(kind, group.title, place))
        if losing:
            losses = _Losses(losing)
            for group in losing:
                add("losses", group.title, groups.index(group), losses.plot(group))
        for figure in more:
            add(*figure)
    return dict(document.to_json(deferred=False)), panels


def _hdr(members: Sequence[Member]) -> Any:
    curves = [(m, curve) for m in members if (curve := curve_of(m.evaluation))]
    right = max(float(curve.x[-1]) for _, curve in curves)
    low = min(int(curve.y[0]) for _, curve in curves)
    high = max(int(curve.y[-1]) for _, curve in curves)
    plot = bare_plot(
        Range1d(start=1, end=right * 1.15),
        Range1d(start=max(low, 1) * 0.75, end=high * 1.4),
        height=520,
        log=(True, True),
    )
    ticks = ticks_of_percentiles(right)
    below, left = plot.below[0], plot.left[0]
    below.ticker = FixedTicker(ticks=ticks, minor_ticks=[])
    below.major_label_overrides = {x: tick_label(x) for x in ticks}
    below.axis_label, left.axis_label = "Percentile", "Latency"
    below.major_label_policy = AllLabels()  # the page's script chooses labels that fit
    left.formatter = tick_format("time")
    plot.center[1].minor_grid_line_alpha = 0.6
    hits = []
    for member in members:
        x, lower, upper = confidence_band(member.evaluation.curve_percentiles)
        _mark(plot, member, "band", {"x": x, "low": lower, "high": upper},
              VArea(x="x", y1="low", y2="high"))  # fmt: skip
    for member, curve in curves:
        data = {"x": curve.x, "y": curve.y.astype(np.float64)}
        split = max(curve.split - 1, 0)
        tail = {"x": data["x"][split:], "y": data["y"][split:]}
        _mark(plot, member, "tail", tail, Line(x="x", y="y", line_width=1.2, line_dash=[2, 3]))
        body = {"x": data["x"][: curve.split], "y": data["y"][: curve.split]}
        width = 1.3 if member.run.origin else 2
        glyph = Line(x="x", y="y", line_width=width, line_dash=_dash(member), line_join="round")
        _mark(plot, member, "line", body, glyph)
        # An invisible wide line under the pointer: Bokeh hits a line within half its width.
        hits.append(_mark(plot, member, "hit", data, Line(x="x", y="y", line_width=18)))
        if member.undisturbed and (left := curve_of(member.undisturbed)):
            data = {"x": left.x[: left.split], "y": left.y[: left.split].astype(np.float64)}
            glyph = Line(x="x", y="y", line_width=1.3, line_dash=list(DASH_DOT))
            _mark(plot, member, "line", data, glyph)
    use_tools(plot, HoverTool(renderers=hits, line_policy="none", limit=6, tags=["hdr"]), "both")
    ruler = Span(dimension="height", line_dash=[3, 3], line_width=1)
    plot.add_tools(CrosshairTool(overlay=ruler))
    return plot


def _loss(curves: Sequence[LossCurve]) -> Any:
    """Loss over packet rate: a line for each curve, and a mark for each run."""
    scale = axes_of(curves)
    plot = bare_plot(
        Range1d(start=scale.low, end=scale.high),
        Range1d(start=scale.floor / 1.5, end=scale.top * 1.5),  # room for the marks
        height=360,
        log=(scale.log_rates, True),
    )
    below, left = plot.below[0], plot.left[0]
    below.axis_label, left.axis_label = "Packet rate before the device", "Lost packets"
    below.formatter = tick_format("rate")
    left.ticker = FixedTicker(ticks=list(scale.ticks), minor_ticks=[])
    left.major_label_overrides = scale.ticks
    marks = []
    for place, curve in enumerate(curves):
        data = {
            "x": [point.rate for point in curve.line],
            "y": [scale.height(point.loss) for point in curve.line],
        }
        line = plot.add_glyph(ColumnDataSource(data), Line(x="x", y="y", line_width=1.5))
        line.tags = [{"curve": place, "role": "line"}]
    for place, curve in enumerate(curves):
        for point in curve.points:
            told = f"{share_text(point.loss)} lost at {rate_text(point.rate)}"
            told += "" if point.valid else ", invalid"
            shown = {"x": [point.rate], "y": [scale.height(point.loss)], "told": [told]}
            glyph = Scatter(x="x", y="y", size=7, marker="circle" if point.valid else "square")
            mark = _mark(plot, point.member, "point" if point.valid else "hollow", shown, glyph)
            mark.tags[0]["curve"] = place
            marks.append(mark)
    limit = Span(location=HEAVY_LOSS, dimension="width", line_dash=[2, 3], line_width=1)
    plot.add_layout(limit)
    use_tools(plot, HoverTool(renderers=marks, limit=4, tags=["loss"]), "both")
    return plot


def _mark_events(plot: Any, group: Configuration) -> None:
    """Lines where something was done to the device on purpose."""
    for begin in sorted({begin for member in group.members for begin, _ in moments(member.run)}):
        line = Span(location=begin, dimension="height", line_dash=[2, 3], line_width=1)
        plot.add_layout(line)


class _Worst:
    """Worst-case latencies over time: one panel for each configuration, one scale for all."""

    def __init__(self, members: Sequence[Member]) -> None:
        latencies = np.concatenate([m.evaluation.worst_latency for m in members])
        low, high = (int(latencies.min()), int(latencies.max())) if latencies.size else (1, 10)
        self._x = _Durations()
        self._y = Range1d(start=max(low, 1) * 0.8, end=max(high, 1) * 1.5)

    def plot(self, group: Configuration) -> Any:
        plot = bare_plot(self._x.of(group), self._y, log=(False, True))
        plot.below[0].axis_label, plot.left[0].axis_label = "Time", "Latency"
        plot.left[0].formatter = tick_format("time")
        shown = ((m, m.evaluation.worst_time, m.evaluation.worst_latency) for m in group.members)
        _dots(plot, "worst", 3, shown)
        _mark_events(plot, group)
        return plot


class _Losses:
    """Losses over time: one panel for each configuration, one scale for all."""

    def __init__(self, groups: Sequence[Configuration]) -> None:
        self._x = _Durations()
        self._ticks = ticks(groups)
        self._y = Range1d(start=COUNT_FLOOR, end=self._ticks[-1] * 2)

    def plot(self, group: Configuration) -> Any:
        plot = bare_plot(self._x.of(group), self._y, log=(False, True))
        plot.below[0].axis_label, plot.left[0].axis_label = "Time", "Packets lost in a row"
        plot.left[0].formatter = tick_format("count")
        plot.left[0].ticker = FixedTicker(ticks=self._ticks)
        _dots(plot, "losses", 5, ((m, *marks(m.evaluation)) for m in group.members))
        _mark_events(plot, group)
        return plot


class _Outlines(ABC):
    """Histograms as outlines on logarithmic axes; what a subclass shows is in `_histograms`."""

    label = ""

    def __init__(self, members: Sequence[Member]) -> None:
        every = [h for m in members for _, h in self._histograms(m)]
        self._bins = bins_per_decade(every)
        shown = [line for m in members for line in self._lines(m)]
        edges = [x for _, x, _ in shown if x.size]
        top = max((float(y.max()) for _, x, y in shown if x.size), default=10.0)
        left = min((float(x[0]) for x in edges), default=1.0)
        right = max((float(x[-1]) for x in edges), default=10.0)
        margin = (right / left) ** 0.03
        self._x = Range1d(start=left / margin, end=right * margin)
        self._y = Range1d(start=COUNT_FLOOR, end=top * 2)

    def plot(self, group: Configuration) -> Any:
        plot = bare_plot(self._x, self._y, log=(True, True))
        plot.below[0].axis_label, plot.left[0].axis_label = self.label, "Packets"
        plot.below[0].formatter = tick_format("time")
        plot.left[0].formatter = tick_format("count")
        marks = []
        for member in group.members:
            for role, x, y in self._lines(member):
                if role == "before":
                    area = {"x": x, "y": y, "floor": np.full(x.size, COUNT_FLOOR)}
                    _mark(plot, member, "fill", area, VArea(x="x", y1="floor", y2="y"))
                glyph = Line(x="x", y="y", line_width=1.5, line_alpha=0.8)
                marks.append(_mark(plot, member, role, {"x": x, "y": y}, glyph))
        use_tools(plot, HoverTool(renderers=marks, limit=2, tags=["bins"]), "both")
        return plot

    def _lines(self, member: Member) -> list[tuple[str, Any, Any]]:
        """Role and corners of each outline of a run."""
        result = []
        for role, histogram in self._histograms(member):
            x, y = outline(*log_histogram(histogram, self._bins), COUNT_FLOOR)
            result.append((role, x.astype(np.float32), y.astype(np.float32)))
        return result

    @abstractmethod
    def _histograms(self, member: Member) -> list[tuple[str, Histogram]]:
        """Role and histogram of each outline of a run."""


class _Gaps(_Outlines):
    """Inter-packet gaps before and after the device."""

    label = "Inter-packet gap"

    def _histograms(self, member: Member) -> list[tuple[str, Histogram]]:
        gaps = member.evaluation.gaps
        return [("before", gaps["ingress"]), ("line", gaps["egress"])]


class _Latency(_Outlines):
    """How often each latency occurred."""

    label = "Latency"

    def _histograms(self, member: Member) -> list[tuple[str, Histogram]]:
        return [("line", member.evaluation.histogram)]


class _Rates:
    """Packets in each second, before and after."""

    def __init__(self, members: Sequence[Member]) -> None:
        del members  # each panel has its own scale: a dip counts against its own rate
        self._x = _Durations()

    def plot(self, group: Configuration) -> Any:
        rates = [m.evaluation.rate_packets[side] for m in group.members for side in SIDES]
        peak = max(int(rate.max(initial=1)) for rate in rates)
        plot = bare_plot(self._x.of(group), Range1d(start=0, end=peak * 1.15), log=(False, False))
        plot.below[0].axis_label = "Time"
        plot.left[0].axis_label = "Packets per second"
        plot.below[0].formatter = tick_format("seconds")
        plot.left[0].formatter = NumeralTickFormatter(format="0.[0]a")
        marks = []
        for member in group.members:
            for role, side in (("before", "ingress"), ("line", "egress")):
                start = member.evaluation.rate_start[side]
                packets = member.evaluation.rate_packets[side]
                data = {
                    "x": np.column_stack((start, start + 1)).ravel().astype(np.float32),
                    "y": np.repeat(packets, 2).astype(np.float32),
                }
                width = 4 if role == "before" else 1.5
                glyph = Line(x="x", y="y", line_width=width, line_dash=_dash(member))
                marks.append(_mark(plot, member, role, data, glyph))
        use_tools(plot, HoverTool(renderers=marks, limit=2, tags=["rates"]), "width")
        return plot


class _Durations:
    """Axes of time: runs that last equally long share one, so that they zoom together."""

    def __init__(self) -> None:
        self._ranges: dict[int, Range1d] = {}

    def of(self, group: Configuration) -> Range1d:
        """The axis of a configuration, up to the end of its longest run."""
        seconds = max(member.evaluation.duration for member in group.members)
        key = round(np.log(seconds) * 20)  # within 5 %
        shared = self._ranges.setdefault(key, Range1d(start=0, end=seconds * 1.01))
        shared.end = max(shared.end, seconds * 1.01)
        return shared


def _dots(
    plot: Any, kind: str, size: int, shown: Iterable[tuple[Member, Floats, Integers]]
) -> None:
    """Dots over time, for each run where it has some."""
    plot.below[0].formatter = tick_format("seconds")
    dots = []
    for member, x, y in shown:
        data = {"x": x.astype(np.float32), "y": y.astype(np.float32)}
        glyph = Scatter(x="x", y="y", size=size, marker="circle", line_color=None)
        dots.append(_mark(plot, member, "dots", data, glyph))
    use_tools(plot, HoverTool(renderers=dots, limit=3, tags=[kind]), "both")


def _mark(plot: Any, member: Member, role: str, data: dict[str, Any], glyph: Any) -> Any:
    renderer = plot.add_glyph(ColumnDataSource(data), glyph)
    renderer.tags = [{"run": member.index, "role": role}]
    if role == "hit":
        glyph.line_alpha = 0.0
    return renderer


def _dash(member: Member) -> list[int]:
    return DASHES[member.dash % len(DASHES)]
