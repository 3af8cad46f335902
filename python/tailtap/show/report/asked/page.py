"""The section of the page with the figures that were asked for."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg

from tailtap.analysis.figures.arranging import Arranged, Grid
from tailtap.base.foreign import RECORD_BYTES, read_bytes
from tailtap.show.report.asked import Asked
from tailtap.show.report.asked.drawing import drawn
from tailtap.show.report.figures import METADATA, SETTINGS


@dataclass(frozen=True)
class Shown:
    """A figure as the template lays it out; pictures are addresses with everything in them."""

    name: str
    title: str
    caption: str
    reason: str
    notes: Sequence[str]
    wide: str
    narrow: str
    columns: int
    """Of panels beside each other on a wide screen."""
    described: str
    """What it shows, for who does not see it."""
    tables: Sequence[Grid]


def shown(
    asked: Sequence[Asked], printed: Mapping[str, Path] = MappingProxyType({})
) -> list[Shown]:
    """What the page shows of the figures that were asked for.

    `printed` are the SVG files of those that were drawn for print already, by their names.
    """
    found = []
    for one in asked:
        arranged = one.arranged
        wide = narrow = described = ""
        if arranged is not None and arranged.panels:
            file = printed.get(one.name)
            wide = (
                _address(read_bytes(file, file.parent, RECORD_BYTES))
                if file
                else _picture(arranged, narrow=False)
            )
            # One column is as wide as a narrow screen.
            narrow = wide if arranged.shape[1] == 1 else _picture(arranged, narrow=True)
            lines = ", ".join(series.label for series in arranged.series if series.label)
            described = f"{one.title}: {arranged.y.label} over {arranged.x.label or 'kinds'}"
            described += f"; {lines}" if lines else ""
        found.append(
            Shown(
                one.name,
                one.title,
                one.figure.caption,
                one.reason,
                arranged.notes if arranged else (),
                wide,
                narrow,
                arranged.shape[1] if arranged else 0,
                described,
                arranged.tables if arranged else (),
            )
        )
    return found


def _picture(arranged: Arranged, *, narrow: bool) -> str:
    """The figure as an address of an SVG that is all in it."""
    content = io.BytesIO()
    with mpl.rc_context(SETTINGS):
        figure = drawn(arranged, narrow=narrow)
        FigureCanvasAgg(figure)
        figure.savefig(content, format="svg", metadata=METADATA["svg"])
    return _address(content.getvalue())


def _address(svg: bytes) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode('ascii')}"
