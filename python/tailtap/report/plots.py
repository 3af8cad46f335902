"""What interactive figures have in common: a plot without colours, its ticks and its tools."""

from __future__ import annotations

from typing import Any

from bokeh.models import (
    BoxZoomTool,
    CustomJSTickFormatter,
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
        plot.add_layout(axis, side)
        plot.add_layout(Grid(axis=axis, dimension=0 if side == "below" else 1))
    return plot


def use_tools(plot: Any, hover: HoverTool, dimensions: Any) -> None:
    """Hover, a box to zoom by dragging, and what the page's script resets by double click."""
    zoom: Any = BoxZoomTool(dimensions=dimensions)
    plot.add_tools(hover, zoom, ResetTool())
    plot.toolbar.active_drag = zoom
