"""What interactive figures have in common: a plot without colours, its ticks and its tools."""

from __future__ import annotations

from math import ceil, floor, log10
from typing import Any, cast

from bokeh.models import (
    BoxZoomTool,
    CustomJSTickFormatter,
    FixedTicker,
    Grid,
    HoverTool,
    LinearAxis,
    LinearScale,
    LogAxis,
    LogScale,
    NoOverlap,
    Plot,
    Range1d,
    ResetTool,
)


def tick_format(form: str) -> CustomJSTickFormatter:
    """Tick labels by a function of the page's script."""
    return CustomJSTickFormatter(code=f"return window.tailtap.{form}(tick)")


TICKS = (1, 1.5, 2, 3, 5, 7)
"""Of each decade, what is labelled on a short logarithmic axis, as far as there is room."""
SHORT = (0.7, 2.0)
"""Decades of an axis on which Bokeh's own ticks are as on a linear one: none in its lower half."""


def _own_ticks(values: Range1d) -> FixedTicker | None:
    """The ticks of a short logarithmic axis; None where Bokeh's own are good."""
    low, high = float(cast("float", values.start)), float(cast("float", values.end))
    if not 0 < low < high or not SHORT[0] < log10(high / low) < SHORT[1]:
        return None
    decades = range(floor(log10(low)), ceil(log10(high)))
    return FixedTicker(ticks=[tick * 10.0**one for one in decades for tick in TICKS])


def bare_plot(x: Range1d, y: Range1d, *, log: tuple[bool, bool], height: int = 240) -> Any:
    """A plot with axes and grids; `log` says which of x and y are logarithmic."""
    plot: Any = Plot(
        x_range=x,
        y_range=y,
        x_scale=LogScale() if log[0] else LinearScale(),
        y_scale=LogScale() if log[1] else LinearScale(),
        height=height,
        min_width=100,
        sizing_mode="stretch_width",
        toolbar_location=None,
        background_fill_color=None,
        border_fill_color=None,
        min_border_right=14,
    )
    policy = NoOverlap(min_distance=8)
    for is_log, side in zip(log, ("below", "left"), strict=True):
        axis: Any = (LogAxis if is_log else LinearAxis)(major_label_policy=policy)
        axis.axis_label_text_font_style = "normal"
        if side == "left" and is_log and (ticker := _own_ticks(y)) is not None:
            axis.ticker = ticker
        plot.add_layout(axis, side)
        plot.add_layout(Grid(axis=axis, dimension=0 if side == "below" else 1))
    return plot


def use_tools(plot: Any, hover: HoverTool, dimensions: Any) -> None:
    """Hover, a box to zoom by dragging, and what the page's script resets by double click."""
    zoom: Any = BoxZoomTool(dimensions=dimensions)
    plot.add_tools(hover, zoom, ResetTool())
    plot.toolbar.active_drag = zoom
