"""The figures for print: PNG, SVG and PDF through matplotlib, the same bytes for the same data.

Sizes are those of a paper: one column (3.5 in) or the whole width (7.16 in). Nothing touches
pyplot; the settings hold only while a figure is written.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import (
    FixedFormatter,
    FixedLocator,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullLocator,
)

from tailtap.analysis.evaluation import Evaluation, Histogram
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
from tailtap.analysis.runs.groups import Configuration, Member, configurations
from tailtap.analysis.runs.reader import experiment_of
from tailtap.analysis.runs.text import broken, count_text, rate_text, share_text, time_text
from tailtap.base.errors import InputError
from tailtap.base.files import drafted, make_folder
from tailtap.show.report.bursts import lossy, marks, ticks
from tailtap.show.report.loss import axes_of, loss_curves
from tailtap.show.report.readings import moments
from tailtap.show.report.undisturbed import DASH_DOT

COLUMN, WIDTH = 3.5, 7.16
PANEL_LETTERS, LEGEND_LETTERS = 15, 58
"""Letters that a panel's title holds in an inch, and a line of the legend in a column."""
HANDLE_LETTERS = 9
"""The room of a line beside its name in the legend, in letters."""
BEFORE = "#8a929a"
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (2.2, 1.4)), (0, (5, 1.4, 1, 1.4)))
SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # ships with matplotlib: the same everywhere
    "font.size": 7,
    "axes.linewidth": 0.6,
    "axes.titlesize": 7,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.linewidth": 0.4,
    "grid.color": "#e0e3e6",
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 6,
    "text.parse_math": False,  # a name may hold a dollar sign
    "pdf.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "tailtap",
    "savefig.dpi": 300,
}
METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": "tailtap"},
    "pdf": {"CreationDate": None, "ModDate": None, "Creator": "tailtap", "Producer": None},
}
COUNTS = FuncFormatter(lambda count, _: count_text(round(count)))
TIMES = FuncFormatter(lambda ns, _: time_text(ns))


def write_figures(
    groups: list[Configuration],
    folder: Path,
    more: Mapping[str, Callable[[], Figure]] = MappingProxyType({}),
    *,
    below: Path | None = None,
    on_figure: Callable[[str, Figure], object] = lambda *_: None,
) -> list[Path]:
    """Write each of `FIGURES`, and of `more`, to `folder` in three formats; returns the paths.

    `on_figure` is told of each, by its name. Raises `OSError` when the folder cannot be written,
    and `InputError` when one from `below` on is a link.
    """
    make_folder(folder, below=below)
    makers: dict[str, Callable[[], Figure]] = {
        name: partial(make, groups)
        for name, make in FIGURES.items()
        if name not in NOT_OF_ALL or NOT_OF_ALL[name](groups)
    }
    with mpl.rc_context(SETTINGS):
        paths = []
        for name, make in (*makers.items(), *more.items()):
            figure = make()
            paths += save_figure(figure, folder, name, below=below)
            on_figure(name, figure)
        return paths


def save_figure(
    figure: Figure,
    folder: Path,
    name: str,
    kinds: Iterable[str] = tuple(METADATA),
    *,
    below: Path | None = None,
) -> list[Path]:
    """Write a figure to `folder` in these formats, by the settings in force; returns the paths.

    Raises `OSError` when the folder cannot be written.
    """
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    figure.set_layout_engine(None)  # laid out once, for all formats alike
    paths = []
    for kind in kinds:
        path = folder / f"{name}.{kind}"
        # Matplotlib has errors of its own for a file that cannot be written.
        content = io.BytesIO()
        figure.savefig(content, format=kind, metadata=METADATA[kind])
        with drafted(path, below=below) as draft:
            draft.write(content.getbuffer())
        paths.append(path)
    return paths


def hdr_figure(groups: list[Configuration], bottom: float | None = None) -> Figure:
    """Latency over percentile of all runs, both axes logarithmic.

    The latencies begin at `bottom` (ns), or at the smallest of all.
    """
    names = [f"{g.label} (tail lost)" if g.lost_heavily else g.title for g in groups]
    labels = [broken(name, LEGEND_LETTERS) for name in names]
    longest = max(map(len, names))
    columns = 1
    if len(groups) > 1 and longest <= 30:
        columns = max(2, LEGEND_LETTERS // (longest + HANDLE_LETTERS))
    lines = -(-sum(label.count("\n") + 1 for label in labels) // columns)
    figure = Figure(figsize=(COLUMN, 2.45 + 0.125 * lines), layout="constrained")
    axes = figure.subplots()
    right = 10.0
    for group in groups:
        for member in group.members:
            curve = curve_of(member.evaluation)
            if curve is None:
                continue
            right = max(right, float(curve.x[-1]))
            x, low, high = confidence_band(member.evaluation.curve_percentiles)
            axes.fill_between(x, low, high, color=group.light, alpha=0.14, linewidth=0)
            split = max(curve.split - 1, 0)
            axes.plot(curve.x[split:], curve.y[split:], color=group.light, linewidth=0.7,
                      linestyle=(0, (1, 1.2)))  # fmt: skip
            axes.plot(curve.x[: curve.split], curve.y[: curve.split], color=group.light,
                      linewidth=0.7 if member.run.origin else 1,
                      linestyle=_dash(member))  # fmt: skip
            if member.undisturbed and (left := curve_of(member.undisturbed)):
                axes.plot(left.x[: left.split], left.y[: left.split], color=group.light,
                          linewidth=0.7, linestyle=(0, DASH_DOT))  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(1, right * 1.1)
    axes.set_ylim(bottom=bottom)
    ticks = ticks_of_percentiles(right)
    axes.xaxis.set_major_locator(FixedLocator([x for x in ticks if x != 4]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: tick_label(x)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.tick_params(axis="x", labelrotation=35)
    for text in axes.get_xticklabels():
        text.set(ha="right", rotation_mode="anchor")
    axes.yaxis.set_major_formatter(TIMES)
    log_ticks(axes.yaxis)
    axes.set_xlabel("Percentile")
    axes.set_ylabel("Latency")
    handles = [
        Line2D([], [], color=g.light, linewidth=0.8 if g.origin else 1.2, linestyle=_dash(g))
        for g in groups
    ]
    figure.legend(handles, labels, loc="outside upper left", ncols=columns,
                  borderaxespad=0.2, labelspacing=0.25)  # fmt: skip
    return figure


def worst_figure(groups: list[Configuration]) -> Figure:
    """The worst latencies over time, one panel for each configuration."""

    def draw(axes: Any, group: Configuration) -> None:
        for member in group.members:
            axes.plot(member.evaluation.worst_time, member.evaluation.worst_latency, ".",
                      color=group.light, markersize=1.6, markeredgewidth=0, alpha=0.6,
                      rasterized=True)  # fmt: skip
            for begin, end in moments(member.run):
                axes.axvspan(begin, end, color=group.light, alpha=0.25, linewidth=0.6)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(TIMES)

    return _panels("worst", groups, draw, "Time since the first packet (s)", "Latency")


def losses_figure(groups: list[Configuration]) -> Figure:
    """The losses over time, one panel for each configuration that lost packets."""

    found, label = lossy(groups), "Time since the first packet (s)"
    top = 2 * ticks(found)[-1]

    def draw(axes: Any, group: Configuration) -> None:
        for member in group.members:
            axes.plot(*marks(member.evaluation), ".", color=group.light, markersize=3,
                      markeredgewidth=0, alpha=0.6, rasterized=True)  # fmt: skip
        seconds = max(member.evaluation.duration for member in group.members)
        axes.set_xlim(-seconds / 100, seconds * 1.01)
        axes.set_yscale("log")
        axes.set_ylim(0.7, top)
        axes.yaxis.set_major_formatter(COUNTS)

    return _panels("losses", found, draw, label, "Packets lost in a row")


def gaps_figure(groups: list[Configuration]) -> Figure:
    """Inter-packet gaps before and after the device, one panel for each configuration."""

    def shown(member: Member) -> dict[str, Histogram]:
        return {
            "before": member.evaluation.gaps["ingress"],
            "after": member.evaluation.gaps["egress"],
        }

    return _outlines("gaps", groups, shown, "Inter-packet gap (grey: before the device)")


def latency_figure(groups: list[Configuration]) -> Figure:
    """How often each latency occurred, one panel for each configuration."""

    def shown(member: Member) -> dict[str, Histogram]:
        return {"after": member.evaluation.histogram}

    return _outlines("latency", groups, shown, "Latency")


def _outlines(
    kind: str,
    groups: list[Configuration],
    shown: Callable[[Member], dict[str, Histogram]],
    label: str,
) -> Figure:
    """The histograms that a run has, on the same logarithmic axes in all panels."""
    every = [h for g in groups for m in g.members for h in shown(m).values()]
    bins = bins_per_decade(every)
    binned = [log_histogram(histogram, bins) for histogram in every]
    top = max((int(counts.max()) for _, counts in binned if counts.size), default=1)
    left = min((float(edges[0]) for edges, _ in binned if edges.size), default=1.0)
    right = max((float(edges[-1]) for edges, _ in binned if edges.size), default=10.0)
    margin = (right / left) ** 0.03

    def draw(axes: Any, group: Configuration) -> None:
        for member in group.members:
            for role, histogram in shown(member).items():
                x, y = outline(*log_histogram(histogram, bins), 0.7)
                before = role == "before"
                axes.plot(x, y, color=BEFORE if before else group.light, linewidth=0.7, alpha=0.85)
                if before:
                    axes.fill_between(x, 0.7, y, color=BEFORE, alpha=0.22, linewidth=0)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_ylim(0.7, top * 2)
        axes.set_xlim(left / margin, right * margin)
        axes.xaxis.set_major_formatter(TIMES)
        axes.yaxis.set_major_formatter(COUNTS)

    return _panels(kind, groups, draw, label, "Packets")


def rates_figure(groups: list[Configuration]) -> Figure:
    """Packets in each second before and after the device, one panel for each configuration."""

    def draw(axes: Any, group: Configuration) -> None:
        peak = 0.001
        for member in group.members:
            for side in SIDES:
                start = member.evaluation.rate_start[side]
                x = np.column_stack((start, start + 1)).ravel()
                y = np.repeat(member.evaluation.rate_packets[side], 2) / 1000
                peak = max(peak, float(y.max(initial=0)))
                before = side == "ingress"
                axes.plot(x, y, color=BEFORE if before else group.light,
                          linewidth=2.2 if before else 0.8, linestyle=_dash(member))  # fmt: skip
        axes.set_ylim(0, peak * 1.15)
        axes.yaxis.set_major_locator(MaxNLocator(4))

    label = "Time since the first packet (s; grey: before the device)"
    return _panels("rates", groups, draw, label, "Packet rate (kpkt/s)", common=False)


def loss_figure(groups: list[Configuration]) -> Figure:
    """Loss over packet rate, all repeats, one line for each configuration apart from its rate."""
    curves = loss_curves(groups)
    scale = axes_of(curves)
    figure = Figure(figsize=(COLUMN, 2.3 + 0.125 * len(curves)), layout="constrained")
    axes = figure.subplots()
    for curve in curves:
        x = [point.rate for point in curve.line]
        axes.plot(x, [scale.height(point.loss) for point in curve.line], color=curve.light,
                  linewidth=1, clip_on=False)  # fmt: skip
        for valid, mark, face in ((True, "o", curve.light), (False, "s", "white")):
            points = [point for point in curve.points if point.valid == valid]
            heights = [scale.height(point.loss) for point in points]
            axes.plot([point.rate for point in points], heights, mark, markersize=3.2,
                      markerfacecolor=face, markeredgecolor=curve.light, markeredgewidth=0.8,
                      linestyle="none", clip_on=False, zorder=3)  # fmt: skip
    axes.axhline(HEAVY_LOSS, color=BEFORE, linewidth=0.7, linestyle=(0, (1, 1.2)))
    axes.text(1, HEAVY_LOSS, share_text(HEAVY_LOSS), transform=axes.get_yaxis_transform(),
              ha="right", va="bottom", color=BEFORE, fontsize=6)  # fmt: skip
    axes.set_yscale("log")
    axes.set_xscale("log" if scale.log_rates else "linear")
    axes.set_xlim(scale.low, scale.high)
    axes.set_ylim(scale.floor, scale.top * 1.2)
    axes.yaxis.set_major_locator(FixedLocator(list(scale.ticks)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FixedFormatter(list(scale.ticks.values())))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda rate, _: rate_text(rate)))
    if scale.log_rates:
        log_ticks(axes.xaxis)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_xlabel("Packet rate before the device")
    axes.set_ylabel("Lost packets")
    handles = [
        Line2D([], [], color=c.light, linewidth=1.2, marker="o", markersize=3) for c in curves
    ]
    labels = [broken(curve.label, LEGEND_LETTERS) for curve in curves]
    if any(not point.valid for curve in curves for point in curve.points):
        handles.append(Line2D([], [], color=BEFORE, marker="s", markersize=3, linestyle="none",
                              markerfacecolor="white"))  # fmt: skip
        labels.append("invalid: not what was asked for")
    figure.legend(handles, labels, loc="outside upper left", borderaxespad=0.2, labelspacing=0.25)
    return figure


#: The figures by name.
FIGURES: dict[str, Callable[[list[Configuration]], Figure]] = {
    "hdr": hdr_figure,
    "worst": worst_figure,
    "losses": losses_figure,
    "gaps": gaps_figure,
    "latency": latency_figure,
    "rates": rates_figure,
    "loss": loss_figure,
}
NOT_OF_ALL: Mapping[str, Callable[[list[Configuration]], Sequence[object]]] = {
    "losses": lossy,
    "loss": loss_curves,
}
"""Figures that not all experiments have, and what they are of: `loss` of runs at several rates."""


def evaluation_figure(evaluation: Evaluation, name: str) -> Figure:
    """The figure `name` of one evaluation that stands for itself.

    Raises `InputError` when there is no figure of that name.
    """
    names = [known for known in FIGURES if known != "loss"]
    if name not in names:
        raise InputError(f"'{name}' is no figure: give one of {', '.join(names)}")
    label = " → ".join(Path(side.path).name for side in evaluation.inputs.both)
    groups = configurations(experiment_of(evaluation, label))
    if name == "losses" and not lossy(groups):
        raise InputError(f"'{name}': no packet was lost, or it is not known which")
    with mpl.rc_context(SETTINGS):
        figure = FIGURES[name](groups)
        FigureCanvasAgg(figure)
        figure.draw_without_rendering()  # ticks are made now, by these settings
    return figure


def panels(
    titles: Sequence[str],
    x: str,
    y: str,
    heights: tuple[float, float, float],
    *,
    more: float = 0.0,
    common: bool = False,
) -> tuple[Figure, list[Any]]:
    """Axes below each of `titles`, three beside each other at most, and what `x` and `y` show.

    `heights` are inches: of one that is alone; of several what all have in common, and each row.
    `more` is for a legend. The y axes are `common`, or each has its own.
    """
    alone, above, row = heights
    columns = {1: 1, 2: 2, 4: 2}.get(len(titles), 3)
    rows = -(-len(titles) // columns)
    width = COLUMN if columns == 1 else WIDTH
    height = alone if columns == 1 else above + row * rows
    figure = Figure(figsize=(width, height + more), layout="constrained")
    grid = list(figure.subplots(rows, columns, sharey=common, squeeze=False).flat)
    for axes, title in zip(grid, titles, strict=False):
        letters = round(PANEL_LETTERS * width / columns)
        axes.set_title(broken(title, letters), loc="left", pad=3)
    for axes in grid[len(titles) :]:
        axes.set_axis_off()
    figure.supxlabel(x, fontsize=7)
    figure.supylabel(y, fontsize=7)
    return figure, grid[: len(titles)]


def _panels(
    kind: str,
    groups: list[Configuration],
    draw: Callable[[Any, Configuration], None],
    x: str,
    y: str,
    *,
    common: bool = True,
) -> Figure:
    """One panel for each configuration, on `common` y axes or each on its own."""
    titles = [group.title for group in groups]
    figure, grid = panels(titles, x, y, (2.3, 0.35, 1.5), common=common)
    for axes, group in zip(grid, groups, strict=True):
        draw(axes, group)
        axes.set_xmargin(0.01)
        if not group.shows(kind):
            axes.text(
                0.5, 0.5, "not published", transform=axes.transAxes, ha="center", color=BEFORE
            )
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        if axis.get_scale() == "log":
            log_ticks(axis)
    return figure


def log_ticks(axis: Any) -> None:
    """Ticks at the decades, or closer where the axis is too short for decades alone."""
    formatter = axis.get_major_formatter()
    low, high = axis.get_view_interval()
    decades = np.log10(high / low)
    if decades < 0.5:
        axis.set_major_locator(MaxNLocator(5))
    else:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 2 else (1,), numticks=12))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(formatter)


def _dash(shown: Member | Configuration) -> Any:
    return DASHES[shown.dash % len(DASHES)]
