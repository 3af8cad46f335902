"""The numbers that a figure draws, as a table."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from tailtap.analysis.figures.specification import BEFORE, Mark, Specification
from tailtap.base.files import drafted

SCHEMA = pa.schema(
    {
        "panel": pa.string(),
        "series": pa.string(),
        "mark": pa.string(),
        "colour": pa.string(),
        "x": pa.float64(),
        "y": pa.float64(),
    }
)
"""A row for each corner of a line or an area, each dot and each end of a bar; `x` and `y` are as
the axes have them."""
Places = npt.NDArray[np.float64]
LINES, AREAS, BARS = range(3)


def numbers(figure: Specification) -> pa.Table:
    """What a figure draws, panel by panel: lines and dots, then areas and intervals, then bars."""
    parts = [SCHEMA.empty_table()]
    for panel in figure.panels:
        names = {one.light: one.label for one in reversed((*figure.legend, *panel.legend))}
        drawn = [(mark, *one) for mark in panel.marks for one in _places(mark)]
        for mark, _, kind, places in sorted(drawn, key=lambda one: one[1]):
            colour = BEFORE if mark.role == "before" else figure.series[mark.series].light
            words = (panel.title, names.get(colour, ""), kind, colour)
            columns = [pa.repeat(" ".join(text.split()), len(places)) for text in words]
            parts.append(pa.table([*columns, places[:, 0], places[:, 1]], schema=SCHEMA))
    return pa.concat_tables(parts)


def _places(mark: Mark) -> Iterator[tuple[int, str, Places]]:
    """When it is told, as what, and the places of it, an (n, 2) array each."""
    match mark.form:
        case "boxes" if mark.abutting:
            yield AREAS, "area", _outline(*mark.corners)
        case "boxes":
            left, right, low, high = mark.sides
            ends = np.array([(left, low), (right, high)], float)
            yield BARS, "bar", ends.transpose(2, 0, 1).reshape(-1, 2)
        case "span":
            yield BARS, "bar", np.column_stack((mark.x, mark.y))
        case "line" | "area" if mark.low is not None:
            yield AREAS, "area", _outline(mark.x, mark.low, np.asarray(mark.high))
        case "line":
            places = np.column_stack((mark.x, mark.y))
            if mark.supported is not None:
                yield LINES, "line", places[max(mark.supported - 1, 0) :]
            yield LINES, "line", places[: mark.supported]
        case "points":
            yield LINES, "line", np.column_stack((mark.x, mark.y))
            if mark.low is not None:
                ends = np.array([(mark.x, mark.low), (mark.x, mark.high)], float)
                known = np.isfinite(mark.low)
                yield AREAS, "line", ends[:, :, known].transpose(2, 0, 1).reshape(-1, 2)
        case _:
            yield LINES, "dots", np.column_stack((mark.x, mark.y))


def _outline(x: Places, low: Places, high: Places) -> Places:
    """The corners around an area, from the upper left one through the lower side and back."""
    there, back = np.column_stack((x, low)), np.column_stack((x, high))[::-1]
    return np.concatenate((back[-1:], there, back[:1], back, back[-1:]))


def write_numbers(figure: Specification, folder: Path, *, below: Path) -> pa.Table:
    """Write what a figure draws as CSV and as Parquet."""
    table = numbers(figure)
    for suffix, content in (("csv", _csv(table)), ("parquet", _parquet(table))):
        with drafted(folder / f"{figure.name}.{suffix}", below=below) as file:
            file.write(content)
    return table


def write_typed(path: Path, *, below: Path) -> None:
    """Write a CSV file of ours as Parquet beside it."""
    table = pyarrow.csv.read_csv(path)
    with drafted(path.with_suffix(".parquet"), below=below) as file:
        file.write(_parquet(table))


def _csv(table: pa.Table) -> bytes:
    file = io.BytesIO()
    pyarrow.csv.write_csv(table, file, pyarrow.csv.WriteOptions(quoting_style="needed"))
    return file.getvalue()


def _parquet(table: pa.Table) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file, compression="zstd")
    return file.getvalue()
