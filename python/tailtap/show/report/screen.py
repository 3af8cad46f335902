"""Figures for the page: specifications as the models that Bokeh's script draws.

The models are written as Bokeh's JSON has them, since making them by its Python library takes
longer than all else that a report needs. The page's script colours every mark by its tag: the run
that it is shown with, its role, and its colours on a light and on a dark page.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import count
from math import ceil, floor, log, log10
from types import MappingProxyType
from typing import Any

import numpy as np

from tailtap.analysis.figures.curves import tick_label
from tailtap.analysis.figures.kinds import Axis
from tailtap.analysis.figures.quantities import CATEGORY, NUMBER, PACKETS, RATE, TAIL, TIME
from tailtap.analysis.figures.specification import (
    BEFORE,
    BEFORE_DARK,
    DASHES,
    UNDISTURBED,
    Mark,
    Panel,
    Specification,
    percentile_ticks,
)

FORMATS = {TIME: "time", RATE: "rate", PACKETS: "count"}
"""The page's functions that write what stands on an axis."""
TICKS = ((1, 1.5, 2, 3, 5, 7), (1, 2, 5))
"""Of each decade, what is labelled on a logarithmic axis, the closest for which there is room."""
LABEL = 34
"""Pixels that a label needs, on average: those of a decade are not evenly apart."""
LINEAR = 0.7
"""Decades of an axis up to which Bokeh's own ticks are good, as on a linear one."""
HEIGHTS = {"hdr": 520, "loss": 360, "causes": 280, "shares": 280, "hops": 280, "hop-packets": 280}
LIMITS = {"hdr": 6, "worst": 3, "losses": 3, "causes": 3, "loss": 4, "shares": 1, "hop-packets": 1}
"""Of how many marks at most the pointer reads."""


@dataclass(frozen=True)
class Model:
    """A model of Bokeh's: its class, its id, and what of it is not as Bokeh has it by default."""

    name: str
    id: str
    attributes: Mapping[str, Any]


@dataclass(frozen=True)
class Shown:
    """A panel on the page: its figure, and the root of its models, empty where nothing is."""

    kind: str
    title: str
    configuration: int
    root: str = ""


class Screen:
    """The figures of one page."""

    def __init__(self) -> None:
        """A page without figures."""
        self._ids = count(1)
        self._roots: list[Model] = []
        self._times: dict[int, Model] = {}
        self.shown: list[Shown] = []

    def model(self, name: str, **attributes: Any) -> Model:
        """A new model."""
        return Model(name, f"t{next(self._ids)}", attributes)

    def put(self, kind: str, title: str, place: int, plot: Model | None) -> None:
        """Add a plot to the page; without one, there is nothing to draw."""
        if plot is not None:
            self._roots.append(plot)
        self.shown.append(Shown(kind, title, place, "" if plot is None else plot.id))

    def add(self, figure: Specification, titles: Mapping[int, str] | None = None) -> None:
        """Add a plot for each panel of a figure, below `titles` by their configurations."""
        shared: dict[str, Model] = {}
        for panel in figure.panels:
            title = (titles or {}).get(panel.place, panel.title or figure.title)
            plot = self._panel(figure, panel, shared) if panel.marks else None
            self.put(figure.name, title, panel.place, plot)

    @property
    def document(self) -> dict[str, Any]:
        """All of it as Bokeh's script reads it: each model where it is first met, then its id."""
        met: set[str] = set()
        return {
            "version": version("bokeh"),
            "title": "",
            "roots": [_encoded(one, met) for one in self._roots],
        }

    def _panel(self, figure: Specification, panel: Panel, shared: dict[str, Model]) -> Model:
        axes = figure.axes(panel)
        ranges = []
        for name, axis in zip("xy", axes, strict=True):
            made = self.model("Range1d", start=axis.low, end=axis.high)
            if name in figure.common:
                made = shared.setdefault(name, made)
            elif name == "x" and panel.x is not None and axis.high:
                # Runs that last equally long, within 5 %, share one, so that they zoom together.
                made = self._times.setdefault(round(log(axis.high) * 20), made)
            ranges.append(made)
        # Bands lie below all lines.
        marks = sorted(panel.marks, key=lambda mark: mark.form != "line" or mark.low is None)
        drawn = [one for mark in marks for one in self._mark(figure, mark)]
        spans = [mark.x[::2] for mark in panel.marks if mark.form == "span"]
        begins = np.unique(np.concatenate([np.zeros(0), *spans])).tolist()
        more = [self.line("height", at) for at in begins]
        more += [self.line("width", at) for at in figure.rulers or {}]
        hits = [one for one in drawn if one.attributes["tags"][0]["role"] in HITS[figure.name]]
        hover = self.model(
            "HoverTool", renderers=hits, limit=LIMITS.get(figure.name, 2), tags=[figure.name],
            **({"line_policy": "none"} if figure.name == "hdr" else {}),
        )  # fmt: skip
        tools = [hover]
        if figure.name == "hdr":
            tools.append(self.model("CrosshairTool", overlay=self.line("height")))
        return self.plot(
            axes, ranges, drawn, HEIGHTS.get(figure.name, 240), more, tools,
            "width" if figure.name in ("rates", "shares", "hop-packets") else "both",
        )  # fmt: skip

    def line(self, dimension: str, at: float | None = None) -> Model:
        """A dotted line across a plot."""
        more = {} if at is None else {"location": at}
        return self.model("Span", dimension=dimension, line_dash=[2, 3], line_width=1, **more)

    def plot(
        self,
        axes: Sequence[Axis],
        ranges: Sequence[Model],
        renderers: Sequence[Model],
        height: int,
        more: Sequence[Model],
        tools: Sequence[Model],
        zoomed: str,
    ) -> Model:
        """A plot without colours, with a box to zoom by dragging; a double click resets it."""
        sides = [self._axis(axis, room) for room, axis in zip((0, height), axes, strict=True)]
        grids = [self.model("Grid", axis=side, dimension=place) for place, side in enumerate(sides)]
        zoom = self.model("BoxZoomTool", dimensions=zoomed)
        scales = [self.model("LogScale" if axis.log else "LinearScale") for axis in axes]
        return self.model(
            "Plot",
            x_range=ranges[0],
            y_range=ranges[1],
            x_scale=scales[0],
            y_scale=scales[1],
            below=sides[:1],
            left=sides[1:],
            center=[*grids, *more],
            renderers=list(renderers),
            toolbar=self.model(
                "Toolbar", tools=[*tools, zoom, self.model("ResetTool")], active_drag=zoom
            ),
            height=height,
            min_width=100,
            sizing_mode="stretch_width",
            toolbar_location=None,
            background_fill_color=None,
            border_fill_color=None,
            min_border_right=14,
        )

    def _axis(self, axis: Axis, room: int) -> Model:
        """An axis; an upright one has `room` of so many pixels."""
        policy = self.model("NoOverlap", min_distance=8)
        attributes: dict[str, Any] = {
            "axis_label": axis.label,
            "axis_label_text_font_style": "normal",
        }
        ticks = axis.ticks
        if axis.quantity is TAIL and ticks is None:
            ticks = {x: tick_label(x) for x in percentile_ticks(axis)}
        if (axis.ticks is None and axis.quantity is TAIL) or axis.quantity in (CATEGORY, NUMBER):
            policy = self.model("AllLabels")  # they fit, or the page's script chooses those that do
        if ticks is not None:
            attributes["ticker"] = self.model("FixedTicker", ticks=list(ticks), minor_ticks=[])
            attributes["major_label_overrides"] = dict(ticks)
        elif axis.log and (own := _own_ticks(axis, room)):
            attributes["ticker"] = self.model("FixedTicker", ticks=own, minor_ticks=[])
        if axis.quantity in FORMATS and ticks is None:
            code = f"return window.tailtap.{FORMATS[axis.quantity]}(tick)"
            attributes["formatter"] = self.model("CustomJSTickFormatter", code=code)
        name = "LogAxis" if axis.log else "LinearAxis"
        return self.model(name, major_label_policy=policy, **attributes)

    def _mark(self, figure: Specification, mark: Mark) -> Iterator[Model]:
        """The models of a mark: a line has a band, a part that few packets support, and more."""
        one = figure.series[mark.series]
        tag: dict[str, Any] = {"run": mark.member, "light": one.light, "dark": one.dark}
        if mark.role == "before":
            tag |= {"light": BEFORE, "dark": BEFORE_DARK}
        if figure.name in ("causes", "shares"):
            tag["cause"] = one.label

        def made(
            role: str, glyph: str, columns: Mapping[str, Any], *more: Any, **looks: Any
        ) -> Model:
            return self.renderer({**tag, "role": role}, glyph, columns, *more, **looks)

        small = np.float32 if mark.form == "dots" or mark.supported is None else np.float64
        data: dict[str, Any] = {"x": mark.x.astype(small), "y": mark.y.astype(small)}
        told = {"told": list(mark.told)} if mark.told else {}
        match mark.form:
            case "line" | "area" if mark.low is not None:
                area = {"x": mark.x, "low": mark.low, "high": mark.high}
                role = "fill" if mark.role == "before" else "band"
                yield made(role, "VArea", area, {"y1": "low", "y2": "high"})
            case "line":
                yield from self._line(figure, mark, made, data)
            case "dots" if mark.role == "hollow" or (mark.told and mark.x.size == 1):
                role = "hollow" if mark.role == "hollow" else "point"
                shape = "square" if role == "hollow" else "circle"
                yield made(role, "Scatter", data | told, size=7, marker=Value(shape))
            case "dots":
                size = 3 if figure.name == "worst" else 5
                yield made("dots", "Scatter", data | told, size=size, line_color=None)
            case "points":
                pattern = DASHES[mark.dash % len(DASHES)]
                if mark.low is not None and mark.high is not None and np.isfinite(mark.low).any():
                    known = np.isfinite(mark.low)
                    sides = {"at": mark.x[known], "low": mark.low[known], "high": mark.high[known]}
                    ends = {"x0": "at", "x1": "at", "y0": "low", "y1": "high"}
                    yield made("line", "Segment", sides, ends)
                yield made("line", "Line", data, line_width=1.5, line_dash=list(pattern))
                yield made("point", "Scatter", data | told, size=6 if mark.x.size <= 16 else 4)
            case "boxes":
                names = ("left", "right", "bottom", "top")
                sides = dict(zip(names, mark.sides, strict=True))
                role = "slab" if mark.abutting else "bar"  # with an edge, so that no gap shows
                yield made(role, "Quad", sides | told, line_color=None)

    def _line(
        self, figure: Specification, mark: Mark, made: Any, data: Mapping[str, Any]
    ) -> Iterator[Model]:
        one = figure.series[mark.series]
        pattern = UNDISTURBED if mark.role == "undisturbed" else DASHES[mark.dash % len(DASHES)]
        looks: dict[str, Any] = {"line_dash": list(pattern), "line_join": "round"}
        if mark.role == "before":
            yield made("before", "Line", data, line_width=1.5 if figure.name == "gaps" else 4)
            return
        if figure.name != "hdr":
            yield made("line", "Line", data, line_width=1.5, **looks)
            return
        if mark.role == "main":
            split = max((mark.supported or 0) - 1, 0)
            tail = {name: column[split:] for name, column in data.items()}
            yield made("tail", "Line", tail, line_width=1.2, line_dash=[2, 3])
        body = {name: column[: mark.supported] for name, column in data.items()}
        yield made("line", "Line", body, line_width=1.3 if one.thin or mark.role != "main" else 2,
                   **looks)  # fmt: skip
        if mark.role == "main":
            # An invisible wide line under the pointer: Bokeh hits a line within half its width.
            yield made("hit", "Line", data, line_width=18, line_alpha=0.0)

    def renderer(
        self,
        tag: Mapping[str, Any],
        glyph: str,
        columns: Mapping[str, Any],
        fields: Mapping[str, str] = MappingProxyType({}),
        **looks: Any,
    ) -> Model:
        """Columns drawn by a glyph: those of `COORDINATES` by their names, others by `fields`."""
        named = {name: name for name in columns if name in COORDINATES}
        places = {name: Field(column) for name, column in {**named, **fields}.items()}
        return self.model(
            "GlyphRenderer",
            data_source=self.model("ColumnDataSource", data=dict(columns)),
            glyph=self.model(glyph, **places, **looks),
            tags=[dict(tag)],
        )


class Field(str):
    """The name of a column."""


class Value(str):
    """A word that is no name of a column."""


COORDINATES = ("x", "y", "left", "right", "bottom", "top")
"""Columns that glyphs call so, too."""
HITS: Mapping[str, Sequence[str]] = {
    "hdr": ("hit",),
    "loss": ("point", "hollow"),
    "hops": ("point",),
    "hop-packets": ("bar",),
    "shares": ("slab",),
    **dict.fromkeys(("worst", "losses", "causes"), ("dots",)),
    **dict.fromkeys(("gaps", "rates", "latency"), ("before", "line")),
}
"""The marks that a pointer reads."""


def _own_ticks(axis: Axis, room: int) -> list[float]:
    """The ticks of an upright logarithmic axis of `room` pixels; none where Bokeh's are good."""
    low, high = axis.low or 0.0, axis.high or 0.0
    decades = log10(high / low) if 0 < low < high else 0.0
    if decades <= LINEAR:
        return []
    ticks = next((ticks for ticks in TICKS if decades * len(ticks) * LABEL < room), None)
    if ticks is None:
        return []
    powers = range(floor(log10(low)), ceil(log10(high)))
    return [tick * 10.0**power for power in powers for tick in ticks]


def _encoded(value: Any, met: set[str]) -> Any:
    """A value as Bokeh's JSON has it."""
    match value:
        case Model(name, id_, attributes):
            if id_ in met:
                return {"id": id_}
            met.add(id_)
            inner = {key: _encoded(part, met) for key, part in attributes.items()}
            return {"type": "object", "name": name, "id": id_, "attributes": inner}
        case Field():
            return {"type": "field", "field": str(value)}
        case Value():
            return {"type": "value", "value": str(value)}
        case np.ndarray():
            column = np.ascontiguousarray(value, "<f4" if value.dtype == np.float32 else "<f8")
            # Its script unpacks what is packed; packing it well is left to the page.
            data = base64.b64encode(gzip.compress(column.tobytes(), 1, mtime=0)).decode("ascii")
            return {"type": "ndarray", "array": {"type": "bytes", "data": data},
                    "shape": [column.size], "dtype": str(column.dtype),
                    "order": "little"}  # fmt: skip
        case Mapping():
            entries = [[key, _encoded(part, met)] for key, part in value.items()]
            return {"type": "map", "entries": entries}
        case list() | tuple():
            return [_encoded(part, met) for part in value]
    return value
