"""Figures for print: a specification drawn by matplotlib, the same bytes for the same data.

Sizes are those of a paper: one column (3.5 in) or the whole width (7.16 in). Nothing touches
pyplot; the settings hold only while a figure is drawn and written.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from tailtap.analysis.figures.curves import tick_label
from tailtap.analysis.figures.kinds import Axis
from tailtap.analysis.figures.quantities import CATEGORY, NUMBER, PACKETS, TAIL, TIME
from tailtap.analysis.figures.specification import (
    BEFORE,
    DASHES,
    UNDISTURBED,
    Entry,
    Mark,
    Panel,
    Specification,
    percentile_ticks,
)
from tailtap.analysis.runs.text import broken, time_text, typeset
from tailtap.analysis.verdict.requirement import Requirement
from tailtap.base.files import drafted

COLUMN, WIDTH = 3.5, 7.16
ONE_COLUMN, MOST_COLUMNS = 3.4, 4
"""The width of a figure on a narrow screen in inches, and panels beside each other at most."""
LETTERS, TITLE_LETTERS = 18, 15
"""Letters in an inch of text, and of a panel's title."""
REQUIRED = "#c0392b"
FORMS = ("o", "^", "s", "D")
"""The dots of several tests in one colour."""
DOTTED, PUBLISHED = (0, (1, 1.2)), (0, (4, 2))
DOTS: dict[str, Any] = {"markeredgewidth": 0, "linestyle": "none"}
NAMED: dict[str, Any] = {"color": REQUIRED, "fontsize": 6, "textcoords": "offset points"}
"""How a requirement is written, some points beside its line."""
CLEAR = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5}
"""Behind a text that curves cross."""
SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # ships with matplotlib: the same everywhere
    "font.size": 7,
    "axes.linewidth": 0.6,
    "axes.titlesize": 7,
    "axes.grid": True,
    "axes.axisbelow": True,
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
TIMES = FuncFormatter(lambda ns, _: time_text(ns))


def write_figure(
    figure: Specification | Figure,
    folder: Path,
    name: str,
    kinds: Iterable[str] = tuple(METADATA),
    *,
    below: Path | None = None,
) -> list[Path]:
    """Write a figure to `folder`, which is there, in these formats; returns the paths.

    Raises `OSError` when the folder cannot be written, and `InputError` when one from `below` on is
    a link.
    """
    paths = []
    with mpl.rc_context(SETTINGS):
        made = drawn(figure) if isinstance(figure, Specification) else figure
        _lay_out(made)
        for kind in kinds:
            path = folder / f"{name}.{kind}"
            # Matplotlib has errors of its own for a file that cannot be written.
            with drafted(path, below=below) as draft:
                draft.write(_as_bytes(made, kind))
            paths.append(path)
    return paths


def in_format(figure: Specification, kind: str, *, narrow: bool = False) -> bytes:
    """A figure in a format; `narrow` as `drawn` has it."""
    with mpl.rc_context(SETTINGS):
        made = drawn(figure, narrow=narrow)
        _lay_out(made)
        return _as_bytes(made, kind)


def as_matplotlib(figure: Specification) -> Figure:
    """A figure that can be shown, changed and saved, whose ticks are made by our settings."""
    with mpl.rc_context(SETTINGS):
        made = drawn(figure)
        FigureCanvasAgg(made)
        made.draw_without_rendering()
    return made


def _lay_out(figure: Figure) -> None:
    """Choose ticks and places, once for all formats."""
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    figure.set_layout_engine(None)


def _as_bytes(figure: Figure, kind: str) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format=kind, metadata=METADATA[kind])
    return content.getvalue()


def drawn(figure: Specification, *, narrow: bool = False) -> Figure:
    """A figure, by the settings in force; `narrow` has its panels below each other."""
    panels = figure.panels
    rows, columns = figure.shape
    places = [(panel.row, panel.column) for panel in panels]
    if narrow or columns > MOST_COLUMNS:
        columns = 1 if narrow else MOST_COLUMNS
        rows = -(-len(panels) // columns)
        places = [divmod(place, columns) for place in range(len(panels))]
    width = ONE_COLUMN if narrow else COLUMN if columns == 1 and not figure.wide else WIDTH
    titles = [
        broken(panel.title, max(round(TITLE_LETTERS * width / columns), 12)) for panel in panels
    ]
    lines = max((title.count("\n") + bool(title) for title in titles), default=0)
    height = 0.45 + rows * ((2.05 if rows == 1 else 1.55) + 0.13 * lines)
    handles, labels, beside, more = _legend(figure.legend, width)
    made = Figure(figsize=(width, height + more), layout="constrained")
    grid = made.subplots(
        rows, columns, sharex="x" in figure.common, sharey="y" in figure.common, squeeze=False
    )
    lowest = {column: max(row for row, other in places if other == column) for _, column in places}
    for panel, (row, column), title in zip(panels, places, titles, strict=True):
        axes, inches = grid[row, column], width / columns
        axes.set_title(title, loc="left", pad=3)
        ends = figure.axes(panel)
        for name, axis in zip("xy", ends, strict=True):
            getattr(axes, f"set_{name}scale")("log" if axis.log else "linear")
            getattr(axes, f"set_{name}lim")(axis.low, axis.high)
            if not getattr(figure, name).label:
                getattr(axes, f"set_{name}label")(axis.label)
        _draw(axes, figure, panel)
        _rule(axes, figure)
        _tick(axes.xaxis, ends[0], inches)
        _tick(axes.yaxis, ends[1], 1.5)
        _name_places(axes, figure, inches)
        if "x" in figure.common:
            axes.tick_params(axis="x", labelbottom=row == lowest[column])
    for place, axes in np.ndenumerate(grid):
        if place not in places:
            axes.set_axis_off()
    made.supxlabel(figure.x.label, fontsize=7)
    made.supylabel(figure.y.label, fontsize=7)
    if handles:
        made.legend(handles, labels, loc="outside upper left", ncols=beside,
                    borderaxespad=0.2, labelspacing=0.25)  # fmt: skip
    return made


def _draw(axes: Any, figure: Specification, panel: Panel) -> None:
    bars = sorted({mark.series for mark in panel.marks if mark.form == "bars"})
    for mark in panel.marks:
        one = figure.series[mark.series]
        color = BEFORE if mark.role == "before" else one.light
        match mark.form:
            case "line":
                _draw_line(axes, mark, color, thin=one.thin, dash=one.dash or mark.dash)
            case "area":
                alpha = 0.22 if mark.role == "before" else 0.14
                axes.fill_between(mark.x, mark.low, mark.high, color=color, alpha=alpha, lw=0)
            case "dots":
                _draw_dots(axes, mark, color, figure.tests)
            case "points":
                _draw_points(axes, mark, color, _shift(figure, mark.series), one.dash or mark.dash)
            case "boxes" if mark.abutting:
                axes.fill_between(*mark.corners, color=color, linewidth=0)
            case "boxes":
                left, right, low, high = mark.sides
                axes.bar(left, high - low, right - left, low, color=color, linewidth=0,
                         align="edge")  # fmt: skip
                axes.grid(axis="x", visible=False)
            case "bars":
                x = mark.x - 0.4 + 0.8 / len(bars) * (bars.index(mark.series) + 0.5)
                axes.bar(x, mark.y, 0.8 / len(bars) * 0.92, color=color)
                _draw_spans(axes, x, mark, "#33383d", 0.6, 1.2)
            case "spread":
                _draw_spread(axes, mark, color, len(figure.series))
            case "span":
                for begin, end in mark.x.reshape(-1, 2):
                    axes.axvspan(begin, end, color=color, alpha=0.25, linewidth=0.6)
    if not panel.marks:
        axes.text(0.5, 0.5, panel.empty, transform=axes.transAxes, ha="center", color=BEFORE)
        if panel.x is not None and panel.y is not None:  # nothing says where they begin and end
            axes.set_axis_off()
    if panel.legend:
        handles = [Patch(color=one.light, label=one.label) for one in panel.legend]
        axes.legend(handles=handles, loc="upper right", ncols=2, handlelength=0.8,
                    labelspacing=0.25, columnspacing=0.8)  # fmt: skip


def _dash(dash: int, pattern: Sequence[float] = ()) -> Any:
    """Dashes as matplotlib has them: in widths of the line."""
    parts = tuple(0.55 * part for part in pattern or DASHES[dash % len(DASHES)])
    return (0, parts) if parts else "-"


def _draw_line(axes: Any, mark: Mark, color: str, *, thin: bool, dash: int) -> None:
    looks: dict[str, Any] = {"color": color, "linewidth": 0.7 if thin else 1}
    looks["linestyle"] = _dash(dash)
    if mark.low is not None:
        axes.fill_between(mark.x, mark.low, mark.high, color=color, alpha=0.14, linewidth=0)
        return
    match mark.role:
        case "before":
            looks |= {"linewidth": 1.6, "alpha": 0.7, "zorder": 1, "linestyle": "-"}
        case "repeat":
            looks |= {"linewidth": 0.6, "alpha": 0.35}
        case "published":
            looks |= {"linewidth": 0.9, "linestyle": PUBLISHED}
        case "undisturbed":
            looks |= {"linewidth": 0.7, "linestyle": _dash(0, UNDISTURBED)}
    sure = len(mark.x) if mark.supported is None else mark.supported
    if mark.supported is not None:
        split = max(mark.supported - 1, 0)
        unsure = {**looks, "linewidth": 0.7, "linestyle": DOTTED}
        axes.plot(mark.x[split:], mark.y[split:], **unsure)
    axes.plot(mark.x[:sure], mark.y[:sure], **looks)


def _draw_dots(axes: Any, mark: Mark, color: str, tests: Sequence[str]) -> None:
    form = FORMS[tests.index(mark.test) % 4] if mark.test else "o"
    many = len(mark.x)
    size = 3.4 if mark.test or many < 100 else 2.4 if many < 1000 else 1.7
    if mark.role == "hollow":
        looks = {"markerfacecolor": "white", "markeredgecolor": color, "markeredgewidth": 0.8}
        axes.plot(mark.x, mark.y, "s", color=color, markersize=3.2, linestyle="none", **looks)
        return
    alpha = 0.25 if mark.role == "repeat" else 0.75
    axes.plot(mark.x, mark.y, form, color=color, markersize=size, alpha=alpha,
              rasterized=many > 500, **DOTS)  # fmt: skip


def _draw_spans(axes: Any, x: Any, mark: Mark, color: str, width: float, cap: float) -> None:
    """From the low end to the high one of each value that has both."""
    if mark.low is None or mark.high is None:
        return
    spans = np.maximum(np.nan_to_num((mark.y - mark.low, mark.high - mark.y)), 0)
    if np.any(spans > 0):
        axes.errorbar(x, mark.y, spans, fmt="none", ecolor=color, elinewidth=width, capsize=cap)


def _shift(figure: Specification, series: int) -> float | None:
    """How far beside its place a series is drawn, where places have no order; else None."""
    if figure.x.quantity is not CATEGORY or not figure.categories:
        return None
    many = len(figure.series)
    return (series - (many - 1) / 2) * min(0.12, 0.6 / many)


def _draw_points(axes: Any, mark: Mark, color: str, shift: float | None, dash: int) -> None:
    """One value at each place; a line joins them where the places have an order (no `shift`)."""
    x = mark.x + (shift or 0)
    if mark.role == "repeat":
        axes.plot(x, mark.y, "o", color=color, markersize=2.2, alpha=0.35, **DOTS)
        return
    published = mark.role == "published"
    axes.plot(
        x,
        mark.y,
        marker="o",
        markersize=3.2 if len(x) <= 16 else 1.2,
        color=color,
        linewidth=1,
        linestyle="none" if shift is not None else PUBLISHED if published else _dash(dash),
        markerfacecolor="white" if published else color,
        markeredgewidth=0.8,
    )
    _draw_spans(axes, x, mark, color, 0.7, 1.6)


def _draw_spread(axes: Any, mark: Mark, color: str, many: int) -> None:
    """A box at each place over all values there, and the values as dots beside its middle."""
    width = 0.7 / many
    shift = (mark.series - (many - 1) / 2) * width
    for place in np.unique(mark.x):
        values = mark.y[mark.x == place]
        if len(values) >= 5:
            looks = {
                f"{part}props": {"color": color, "linewidth": wide}
                for part, wide in (("box", 0.8), ("median", 1.2), ("whisker", 0.6), ("cap", 0.6))
            }
            axes.boxplot(values, positions=[place + shift], widths=width * 0.7, whis=(5, 95),
                         showfliers=False, manage_ticks=False, **looks)  # fmt: skip
        turn = np.linspace(-0.22, 0.22, len(values)) if len(values) > 1 else np.zeros(1)
        x = place + shift + turn * width
        axes.plot(x, values, "o", color=color, markersize=1.8, alpha=0.5, **DOTS)


def _rule(axes: Any, figure: Specification) -> None:
    """Lines at heights, and the requirements."""
    for height, text in (figure.rulers or {}).items():
        axes.axhline(height, color=BEFORE, linewidth=0.8, linestyle=DOTTED)
        axes.text(1, height, text, transform=axes.get_yaxis_transform(), ha="right", va="bottom",
                  color=BEFORE, fontsize=6)  # fmt: skip
    for wanted in figure.required:
        limit, text = float(wanted.limit), typeset(wanted.text)
        left, right = axes.get_xlim()
        if figure.x.quantity is TAIL:
            end = _tail_of(wanted)
            axes.plot([1, min(end, right)], [limit, limit], color=REQUIRED, linewidth=0.9)
            if end < right:
                top = axes.get_ylim()[1]
                axes.plot([end, end], [limit, top], color=REQUIRED, linewidth=0.9)
            axes.annotate(text, (left, limit), (3, 2), bbox=CLEAR, **NAMED)
        elif figure.y.quantity is TIME or wanted.quantity == "loss":
            axes.axhline(limit, color=REQUIRED, linewidth=0.9)
            across = axes.get_yaxis_transform()
            axes.annotate(text, (0, limit), (3, 2), bbox=CLEAR, xycoords=across, **NAMED)
        else:
            axes.axvline(limit, color=REQUIRED, linewidth=0.9)
            looks = {**NAMED, "ha": "right", "va": "top", "rotation": 90}
            upright = axes.get_xaxis_transform()
            axes.annotate(text, (limit, 1), (-2, -3), xycoords=upright, **looks)


def _tail_of(wanted: Requirement) -> float:
    """Where on the axis of percentiles a requirement ends."""
    if wanted.quantity != "percentile" or wanted.argument is None:
        return float("inf")
    return float(1 / (1 - wanted.argument))


def _tick(axis: Any, told: Axis, inches: float) -> None:
    quantity = told.quantity
    low, high = axis.get_view_interval()
    if told.ticks is not None or quantity is TAIL:
        ticks = told.ticks or {x: tick_label(x) for x in percentile_ticks(told) if x != 4}
        axis.set_major_locator(FixedLocator(list(ticks)))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda x, _: ticks.get(x, "")))
        return
    axis.set_major_formatter(FuncFormatter(lambda value, _: quantity.text(value)))
    if axis.get_scale() == "log":
        log_ticks(axis)
        if inches < 2.5 and np.log10(high / low) > max(4, 2 * inches):
            axis.set_major_locator(LogLocator(numticks=5))
    elif quantity is not CATEGORY:
        whole = quantity in (NUMBER, PACKETS) and high - low >= 3
        fewest = 3 if axis.axis_name == "x" else 4
        axis.set_major_locator(MaxNLocator(max(min(round(inches * 1.6), 6), fewest), integer=whole))


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


def _name_places(axes: Any, figure: Specification, inches: float) -> None:
    """Names and numbers at the places of x; those that need much room lean."""
    ticks = figure.measured or range(len(figure.categories))
    if ticks:
        axes.xaxis.set_major_locator(FixedLocator(list(ticks)))
    if figure.categories:
        names = dict(enumerate(broken(name, 22) for name in figure.categories))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: names.get(round(x), "")))
        axes.grid(visible=False, axis="x")
    words = figure.categories or tuple((figure.x.ticks or {}).values())
    room = LETTERS * (inches - 0.5) / max(len(words), 1)
    crowded = any(len(line) > room for name in words for line in name.split("\n"))
    if crowded or figure.x.quantity is TAIL:
        # Lines of text that lean far take less of the width.
        close = bool(words) and room < LETTERS * 0.2
        axes.tick_params(axis="x", labelrotation=60 if close else 35)
        for text in axes.get_xticklabels():
            text.set(ha="right", rotation_mode="anchor")


def _legend(entries: Sequence[Entry], width: float) -> tuple[list[Any], list[str], int, float]:
    """Handles and labels, how many stand beside each other, and how high all are in inches."""
    labels = [broken(one.label, round(LETTERS * (width - 0.5))) for one in entries]
    longest = max((len(line) for label in labels for line in label.split("\n")), default=1)
    columns = max(1, min(len(labels), int(width * LETTERS // (longest + 9))))
    lines = -(-sum(label.count("\n") + 1 for label in labels) // columns)
    return [_handle(one) for one in entries], labels, columns, 0.135 * lines


def _handle(one: Entry) -> Any:
    looks: dict[str, Any] = {"color": one.light, "markersize": 3.4}
    if one.form in ("bars", "spread", "boxes"):
        return Patch(color=one.light)
    if one.role == "hollow":
        return Line2D([], [], marker="s", markerfacecolor="white", linestyle="none", **looks)
    if one.form == "dots":
        return Line2D([], [], marker=FORMS[one.test % 4], linestyle="none", **looks)
    style = PUBLISHED if one.role == "published" else _dash(one.dash)
    width = 0.9 if one.thin or one.role == "published" else 1.2
    marker = "o" if one.form == "points" else None
    return Line2D([], [], linewidth=width, marker=marker, linestyle=style, **looks)
