"""The numbers that a figure draws, as a table: whatever it is of, its marks have places."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from matplotlib.collections import Collection, PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

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


def numbers(figure: Figure) -> pa.Table:
    """What a figure draws, panel by panel, in the order in which it is drawn."""
    names = _legend(figure)
    parts = [
        pa.table(
            {
                "panel": pa.repeat(_title(axes), len(places)),
                "series": pa.repeat(names.get(colour, ""), len(places)),
                "mark": pa.repeat(mark, len(places)),
                "colour": pa.repeat(colour, len(places)),
                "x": places[:, 0],
                "y": places[:, 1],
            },
            SCHEMA,
        )
        for axes in figure.axes
        for mark, colour, places in _marks(axes)
        if len(places)
    ]
    return pa.concat_tables(parts) if parts else SCHEMA.empty_table()


def _title(axes: Any) -> str:
    return " ".join((axes.get_title(loc="left") or axes.get_title()).split())


def _legend(figure: Figure) -> Mapping[str, str]:
    """What each colour stands for, as the legend says; the first of a colour counts."""
    found: dict[str, str] = {}
    legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes)]
    for legend in legends:
        if legend is None:
            continue
        for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=False):
            colour = _colour(handle)
            found.setdefault(colour, " ".join(text.get_text().split()))
    return found


def _colour(artist: Any) -> str:
    for name in ("get_color", "get_facecolor", "get_edgecolor"):
        if hasattr(artist, name):
            value = getattr(artist, name)()
            if isinstance(value, np.ndarray) and value.ndim == 2:
                if not len(value):
                    continue
                value = value[0]
            return str(to_hex(value))
    return ""


def _marks(axes: Any) -> Iterator[tuple[str, str, np.ndarray[Any, Any]]]:
    """Kind, colour and places of all that is drawn at places of the data, an (n, 2) array each."""
    for line in axes.lines:
        if line.get_transform().contains_branch(axes.transData):
            places = np.column_stack([np.asarray(part, float) for part in line.get_data(orig=True)])
            yield "dots" if line.get_linestyle() == "None" else "line", _colour(line), places
    for collection in axes.collections:
        yield from _of_collection(collection)
    for patch in axes.patches:
        if isinstance(patch, Rectangle):
            low, high = patch.get_bbox().min, patch.get_bbox().max
            yield "bar", _colour(patch), np.asarray([low, high], float)


def _of_collection(collection: Collection) -> Iterator[tuple[str, str, np.ndarray[Any, Any]]]:
    colour = _colour(collection)
    if isinstance(collection, PathCollection):
        yield "dots", colour, np.asarray(collection.get_offsets(), float)
        return
    for path in collection.get_paths():
        yield "area" if path.codes is not None else "line", colour, np.asarray(path.vertices, float)


def write_numbers(figure: Figure, folder: Path, name: str, *, below: Path) -> pa.Table:
    """Write what a figure draws as CSV and as Parquet."""
    table = numbers(figure)
    for suffix, content in (("csv", _csv(table)), ("parquet", _parquet(table))):
        with drafted(folder / f"{name}.{suffix}", below=below) as file:
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
