"""A figure of the experiment file drawn by matplotlib: panels on common axes, one legend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from tailtap.analysis.figures.arranging import Arranged, Mark, Panel
from tailtap.analysis.figures.curves import tick_label, ticks_between, ticks_of_percentiles
from tailtap.analysis.figures.kinds import FLOOR, Axis
from tailtap.analysis.figures.model import Scale
from tailtap.analysis.figures.quantities import CATEGORY, NUMBER, PACKETS, SHARE, TAIL, TIME
from tailtap.analysis.runs.groups import LIGHT, WIRE_LIGHT
from tailtap.analysis.runs.text import broken, with_micro_sign
from tailtap.analysis.verdict.requirement import Requirement
from tailtap.show.report.figures import BEFORE, COLUMN, WIDTH, log_ticks

COLORS = (*LIGHT[0], *LIGHT[1])
FORMS = ("o", "^", "s", "D")
"""The dots of several tests in one colour."""
PUBLISHED: Any = (0, (4, 2))
ONE_COLUMN, MOST_COLUMNS = 3.4, 4
"""The width of a figure on a narrow screen in inches, and panels beside each other at most."""
LETTERS = 18
"""Letters in an inch of text."""
REQUIRED = "#c0392b"
DOTS: dict[str, Any] = {"markeredgewidth": 0, "linestyle": "none"}
NAMED: dict[str, Any] = {"color": REQUIRED, "fontsize": 6, "textcoords": "offset points"}
"""How a requirement is written, some points beside its line."""
CLEAR = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5}
"""Behind a text that curves cross."""


def drawn(arranged: Arranged, *, narrow: bool = False) -> Figure:
    """The figure, by matplotlib's settings in force; `narrow` has its panels below each other."""
    panels = list(arranged.panels)
    rows, columns = arranged.shape
    if narrow or columns > MOST_COLUMNS:
        columns = 1 if narrow else MOST_COLUMNS
        rows = -(-len(panels) // columns)
        places = [divmod(place, columns) for place in range(len(panels))]
    else:
        places = [(panel.row, panel.column) for panel in panels]
    width = ONE_COLUMN if narrow else COLUMN if columns == 1 else WIDTH
    handles, labels = _legend(arranged, width)
    lines = _legend_lines(labels, width)
    title_lines = max(
        (_title(panel, width / columns).count("\n") + bool(panel.title) for panel in panels),
        default=0,
    )
    each = 2.05 if rows == 1 else 1.55
    height = 0.45 + rows * (each + 0.13 * title_lines) + 0.135 * lines
    figure = Figure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    used, axes_of = set(places), list(np.ravel(grid))
    for panel, (row, column) in zip(panels, places, strict=True):
        axes = grid[row, column]
        _draw_panel(axes, arranged, panel)
        axes.set_axisbelow(True)  # the grid
        if not panel.marks:
            axes.text(
                0.5, 0.8, "no run", transform=axes.transAxes, ha="center", color=BEFORE, fontsize=7
            )
        axes.set_title(_title(panel, width / columns), loc="left", pad=3)
    for place, axes in enumerate(axes_of):
        if divmod(place, columns) not in used:
            axes.set_axis_off()
    first = grid[places[0]]
    _set_axes(first, arranged, width / columns)
    for row, column in places:
        _draw_lines(grid[row, column], arranged)
    _set_ticks(grid, places, arranged, width / columns)
    figure.supxlabel(arranged.x.label, fontsize=7)
    figure.supylabel(arranged.y.label, fontsize=7)
    if handles:
        figure.legend(
            handles,
            labels,
            loc="outside upper left",
            ncols=_legend_columns(labels, width),
            borderaxespad=0.2,
            labelspacing=0.25,
        )
    return figure


def _title(panel: Panel, inches: float) -> str:
    return broken(panel.title, max(round(LETTERS * (inches - 0.4)), 12))


def _color(arranged: Arranged, series: int) -> str:
    wires = [place for place, one in enumerate(arranged.series) if one.wire]
    if series in wires:
        return WIRE_LIGHT[wires.index(series) % len(WIRE_LIGHT)]
    rest = [place for place, one in enumerate(arranged.series) if not one.wire]
    return COLORS[rest.index(series) % len(COLORS)]


def _dash(series: int) -> Any:
    """Dots and dashes where colours come round again."""
    return ("-", (0, (1, 1.2)), (0, (5, 1, 1, 1)))[series // len(COLORS) % 3]


def _draw_panel(axes: Any, arranged: Arranged, panel: Panel) -> None:
    bars = [mark for mark in panel.marks if mark.form == "bars"]
    many = len({mark.series for mark in bars}) or 1
    order = sorted({mark.series for mark in bars})
    for mark in panel.marks:
        color = _color(arranged, mark.series)
        match mark.form:
            case "line":
                _draw_line(axes, mark, color)
            case "dots":
                form = FORMS[arranged.tests.index(mark.test) % 4] if mark.test else "o"
                size = 3.4 if mark.test or len(mark.x) < 100 else 1.8
                alpha = 0.75 if mark.role == "main" else 0.25
                looks = {**DOTS, "alpha": alpha, "rasterized": len(mark.x) > 500}
                axes.plot(mark.x, mark.y, form, color=color, markersize=size, **looks)
            case "points":
                _draw_points(axes, mark, color, _shift(arranged, mark.series))
            case "bars":
                place, width = order.index(mark.series), 0.8 / many
                x = mark.x - 0.4 + width * (place + 0.5)
                axes.bar(x, mark.y, width * 0.92, color=color)
                _draw_spans(axes, x, mark, "#33383d", 0.6, 1.2)
            case "spread":
                _draw_spread(axes, mark, color, arranged)


def _draw_spans(axes: Any, x: Any, mark: Mark, color: str, width: float, cap: float) -> None:
    """From the low end to the high one of each value that has both."""
    if mark.low is None or mark.high is None:
        return
    spans = np.maximum(np.nan_to_num((mark.y - mark.low, mark.high - mark.y)), 0)
    if np.any(spans > 0):
        axes.errorbar(x, mark.y, spans, fmt="none", ecolor=color, elinewidth=width, capsize=cap)


def _draw_line(axes: Any, mark: Mark, color: str) -> None:
    if mark.low is not None and mark.high is not None:
        axes.fill_between(mark.x, mark.low, mark.high, color=color, alpha=0.14, linewidth=0)
        return
    if mark.role == "before":
        axes.plot(mark.x, mark.y, color=BEFORE, linewidth=1.8, alpha=0.6, zorder=1)
        return
    faint = mark.role == "repeat"
    style = PUBLISHED if mark.role == "published" else _dash(mark.series)
    width = 0.9 if mark.role == "published" else 0.6 if faint else 1.1
    alpha = 0.35 if faint else 1
    sure = len(mark.x) if mark.supported is None else mark.supported
    x, y = mark.x[:sure], mark.y[:sure]
    axes.plot(x, y, color=color, linewidth=width, linestyle=style, alpha=alpha)
    if mark.supported is not None:
        split = max(mark.supported - 1, 0)
        x, y = mark.x[split:], mark.y[split:]
        axes.plot(x, y, color=color, linewidth=0.7, alpha=alpha, linestyle=(0, (1, 1.2)))


def _shift(arranged: Arranged, series: int) -> float | None:
    """How far beside its place a series is drawn, where places have no order; else None."""
    if arranged.x.quantity is not CATEGORY:
        return None
    many = len(arranged.series)
    return (series - (many - 1) / 2) * min(0.12, 0.6 / many)


def _draw_points(axes: Any, mark: Mark, color: str, shift: float | None) -> None:
    """One value at each place; a line joins them where the places have an order (no `shift`)."""
    x = mark.x + (shift or 0)
    if mark.role == "repeat":
        axes.plot(x, mark.y, "o", color=color, markersize=2.2, alpha=0.35, **DOTS)
        return
    published = mark.role == "published"
    style = "none" if shift is not None else PUBLISHED if published else _dash(mark.series)
    axes.plot(
        x,
        mark.y,
        marker="o",
        markersize=3.2,
        color=color,
        linewidth=1,
        linestyle=style,
        markerfacecolor="white" if published else color,
        markeredgewidth=0.8,
    )
    _draw_spans(axes, x, mark, color, 0.7, 1.6)


def _draw_spread(axes: Any, mark: Mark, color: str, arranged: Arranged) -> None:
    """A box at each place over all values there, and the values as dots beside its middle."""
    many = len(arranged.series)
    width = 0.7 / many
    shift = (mark.series - (many - 1) / 2) * width
    for place in np.unique(mark.x):
        values = mark.y[mark.x == place]
        if len(values) >= 5:
            looks = {
                f"{part}props": {"color": color, "linewidth": wide}
                for part, wide in (("box", 0.8), ("median", 1.2), ("whisker", 0.6), ("cap", 0.6))
            }
            axes.boxplot(
                values,
                positions=[place + shift],
                widths=width * 0.7,
                whis=(5, 95),
                showfliers=False,
                manage_ticks=False,
                **looks,
            )
        turn = np.linspace(-0.22, 0.22, len(values)) if len(values) > 1 else np.zeros(1)
        x = place + shift + turn * width
        axes.plot(x, values, "o", color=color, markersize=1.8, alpha=0.5, **DOTS)


def _set_axes(axes: Any, arranged: Arranged, inches: float) -> None:
    """The scales and ranges, which all panels share."""
    scales = arranged.figure.axes
    for name, asked, axis in (("x", scales.x, arranged.x), ("y", scales.y, arranged.y)):
        values = _values(arranged, name)
        if is_log(asked, axis, values):
            getattr(axes, f"set_{name}scale")("log")
        low, high = asked.bounds(axis.quantity)
        least, most = _range(arranged, name, axis, asked, values)
        getattr(axes, f"set_{name}lim")(
            least if low is None else low, most if high is None else high
        )
    del inches


def is_log(asked: Scale, axis: Axis, values: Any) -> bool:
    """Whether an axis is logarithmic; none is where nothing lies above 0."""
    log = axis.log if asked.scale is None else asked.scale == "log"
    return log and axis.quantity is not CATEGORY and bool(np.any(values > 0))


def _values(arranged: Arranged, name: str) -> Any:
    """All that lies on an axis, requirements among it."""
    found = [np.zeros(0)]
    if name == "y" and arranged.y.quantity in (TIME, SHARE):
        found.append(np.array([float(wanted.limit) for wanted in arranged.figure.required]))
    for panel in arranged.panels:
        for mark in panel.marks:
            sides = [mark.x] if name == "x" else [mark.y, mark.low, mark.high]
            found += [side for side in sides if side is not None]
    values = np.concatenate(found)
    return values[np.isfinite(values)]


def _range(
    arranged: Arranged, name: str, axis: Axis, asked: Scale, values: Any
) -> tuple[float | None, float | None]:
    """Where an axis begins and ends by itself."""
    if arranged.categories and name == "x":
        return -0.6, len(arranged.categories) - 0.4
    if is_log(asked, axis, values):
        over = values[values > 0]
        low, high = float(over.min()), float(over.max())
        if axis.quantity is TAIL:
            return max(low, 1.0), high * 1.1
        if axis.quantity is PACKETS and arranged.figure.made.of == "run":
            return FLOOR, high * 2
        margin = max((high / low) ** 0.06, 1.15)
        return low / margin, high * margin
    if not values.size:
        return None, None
    low, high = float(values.min()), float(values.max())
    if arranged.figure.kind == "shape":
        return low - 0.1 * (high - low or 1), high + 0.1 * (high - low or 1)
    if name == "x" and arranged.figure.made.of == "value":
        return low - 0.05 * (high - low or 1), high + 0.05 * (high - low or 1)
    return min(0.0, low), (high or 1.0) * (1.02 if name == "x" else 1.08)


def _draw_lines(axes: Any, arranged: Arranged) -> None:
    """The requirements as lines, and where 5 % of p values lie."""
    for wanted in arranged.figure.required:
        limit, text = float(wanted.limit), with_micro_sign(wanted.text)
        left, right = axes.get_xlim()
        if arranged.x.quantity is TAIL:
            end = _tail_of(wanted)
            axes.plot([1, min(end, right)], [limit, limit], color=REQUIRED, linewidth=0.9)
            if end < right:
                top = axes.get_ylim()[1]
                axes.plot([end, end], [limit, top], color=REQUIRED, linewidth=0.9)
            axes.annotate(text, (left, limit), (3, 2), bbox=CLEAR, **NAMED)
        elif arranged.y.quantity is TIME or wanted.quantity == "loss":
            axes.axhline(limit, color=REQUIRED, linewidth=0.9)
            across = axes.get_yaxis_transform()
            axes.annotate(text, (0, limit), (3, 2), bbox=CLEAR, xycoords=across, **NAMED)
        else:
            axes.axvline(limit, color=REQUIRED, linewidth=0.9)
            looks = {**NAMED, "ha": "right", "va": "top", "rotation": 90}
            upright = axes.get_xaxis_transform()
            axes.annotate(text, (limit, 1), (-2, -3), xycoords=upright, **looks)
    if arranged.figure.kind == "stationarity":
        axes.axhline(0.05, color=BEFORE, linewidth=0.8, linestyle=(0, (1, 1.2)))
    if arranged.figure.kind == "shape":
        axes.axhline(0, color=BEFORE, linewidth=0.8, linestyle=(0, (1, 1.2)))


def _tail_of(wanted: Requirement) -> float:
    """Where on the axis of percentiles a requirement ends."""
    if wanted.quantity != "percentile" or wanted.argument is None:
        return float("inf")
    return float(1 / (1 - wanted.argument))


def _set_ticks(
    grid: Any, places: Sequence[tuple[int, int]], arranged: Arranged, inches: float
) -> None:
    lowest = {column: max(row for row, other in places if other == column) for _, column in places}
    for row, column in places:
        axes = grid[row, column]
        for axis, told in ((axes.xaxis, arranged.x), (axes.yaxis, arranged.y)):
            _tick(axis, told, inches if axis is axes.xaxis else 1.5)
        if (places_at := _measured_at(arranged)) is not None:
            axes.xaxis.set_major_locator(FixedLocator(places_at))
        if arranged.categories:
            axes.xaxis.set_major_locator(FixedLocator(list(range(len(arranged.categories)))))
            names = [broken(name, 22) for name in arranged.categories]
            axes.xaxis.set_major_formatter(
                FuncFormatter(
                    lambda x, _, names=names: names[round(x)] if 0 <= round(x) < len(names) else ""
                )
            )
            axes.grid(visible=False, axis="x")
        axes.tick_params(axis="x", labelbottom=row == lowest[column])
        room = LETTERS * (inches - 0.5) / max(len(arranged.categories), 1)
        crowded = any(len(line) > room for name in arranged.categories for line in name.split("\n"))
        if crowded or arranged.x.quantity is TAIL:
            # Lines of text that lean far take less of the width.
            close = bool(arranged.categories) and room < LETTERS * 0.2
            axes.tick_params(axis="x", labelrotation=60 if close else 35)
            for text in axes.get_xticklabels():
                text.set(ha="right", rotation_mode="anchor")


def _measured_at(arranged: Arranged) -> list[float] | None:
    """The values of a varied number, where these are few: nothing was measured between them."""
    if arranged.x.quantity is not NUMBER or arranged.figure.made.of != "value":
        return None
    found = sorted({float(x) for panel in arranged.panels for mark in panel.marks for x in mark.x})
    return found if len(found) <= 8 else None


def _tick(axis: Any, told: Axis, inches: float) -> None:
    quantity = told.quantity
    low, high = axis.get_view_interval()
    if quantity is TAIL:
        ticks = ticks_of_percentiles(high) if low <= 1 else ticks_between(low, high)
        axis.set_major_locator(FixedLocator([x for x in ticks if low <= x <= high and x != 4]))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda x, _: tick_label(x)))
        return
    axis.set_major_formatter(FuncFormatter(lambda value, _: quantity.text(value)))
    if axis.get_scale() == "log":
        log_ticks(axis)
        if inches < 2 and np.log10(high / low) > 4:
            axis.set_major_locator(LogLocator(numticks=5))
    elif quantity is not CATEGORY:
        whole = quantity in (NUMBER, PACKETS) and high - low >= 3
        axis.set_major_locator(MaxNLocator(max(min(round(inches * 1.6), 6), 3), integer=whole))


def _legend(arranged: Arranged, width: float) -> tuple[list[Any], list[str]]:
    """The handles and labels of the legend; none where there is one unnamed line."""
    marks = [mark for panel in arranged.panels for mark in panel.marks]
    handles: list[Any] = []
    labels: list[str] = []
    if len(arranged.series) > 1:
        for place, one in enumerate(arranged.series):
            mine = [mark for mark in marks if mark.series == place]
            if not mine:
                continue
            joined = _shift(arranged, place) is None
            as_drawn = "dots" if mine[0].form == "points" and not joined else mine[0].form
            handles.append(_handle(_color(arranged, place), as_drawn, place))
            labels.append(broken(one.label, round(LETTERS * (width - 0.5))))
    for form, test in zip(FORMS, arranged.tests, strict=False):
        handles.append(Line2D([], [], color=BEFORE, marker=form, markersize=3.4, linestyle="none"))
        labels.append(test)
    beside = arranged.figure.beside
    if beside is not None and any(mark.role == "published" for mark in marks):
        handles.append(Line2D([], [], color=BEFORE, linewidth=0.9, linestyle=PUBLISHED))
        labels.append(broken(beside.name, round(LETTERS * (width - 0.5))))
    return handles, labels


def _handle(color: str, form: str, series: int) -> Any:
    if form in ("bars", "spread"):
        return Patch(color=color)
    if form == "dots":
        return Line2D([], [], color=color, marker="o", markersize=3.4, linestyle="none")
    marker = "o" if form == "points" else None
    return Line2D(
        [], [], color=color, linewidth=1.2, marker=marker, markersize=3, linestyle=_dash(series)
    )


def _legend_columns(labels: Sequence[str], width: float) -> int:
    longest = max((len(line) for label in labels for line in label.split("\n")), default=1)
    return max(1, min(len(labels), int(width * LETTERS // (longest + 9))))


def _legend_lines(labels: Sequence[str], width: float) -> int:
    if not labels:
        return 0
    columns = _legend_columns(labels, width)
    return -(-sum(label.count("\n") + 1 for label in labels) // columns)
