"""The tables of an evaluation as Parquet files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tailtap.errors import MachineError
from tailtap.evaluation.values import (
    Blocks,
    Column,
    Exceedances,
    Histogram,
    Pair,
    Percentile,
    Worst,
)
from tailtap.files import sync


def counts(name: str, pair: Pair) -> pa.Table:
    """A table of a value called `name` and its `count`."""
    return pa.table({name: pair[0], "count": pair[1]})


def histogram(pair: Pair, width_ns: int) -> Histogram:
    """Values that ascend, and how many had each, gathered into buckets of `width_ns`."""
    values, numbers = pair
    if not values.size:
        return Histogram(values, numbers, width_ns)
    buckets = values // width_ns
    first = np.concatenate(([0], np.flatnonzero(buckets[1:] != buckets[:-1]) + 1))
    return Histogram(buckets[first] * width_ns, np.add.reduceat(numbers, first), width_ns)


def percentiles(rows: Sequence[Percentile]) -> pa.Table:
    """The table of percentiles."""
    return pa.table(
        {
            "p": pa.array([row.p for row in rows], pa.float64()),
            "value": pa.array([row.value for row in rows], pa.int64()),
            "low": pa.array([row.low for row in rows], pa.int64()),
            "high": pa.array([row.high for row in rows], pa.int64()),
            "above": pa.array([row.above for row in rows], pa.int64()),
            "supported": pa.array([row.supported for row in rows], pa.bool_()),
        }
    )


def worst(packets: Worst) -> pa.Table:
    """The table of the worst packets."""
    return pa.table(
        {
            "latency_ns": packets.latency_ns,
            "ingress_ns": packets.ingress_ns,
            "egress_ns": packets.egress_ns,
            "key": pa.array(packets.key, pa.string()),
        }
    )


def columns(values: Exceedances | Blocks) -> pa.Table:
    """The columns of values, under their names."""
    named = values._asdict()
    return pa.table({name: column for name, column in named.items() if np.ndim(column)})


def all_columns(table: pa.Table) -> list[Column]:
    """All columns of a table, each of integers."""
    return [column(table, name) for name in table.column_names]


def by_side(sides: Mapping[str, Pair], names: tuple[str, str]) -> pa.Table:
    """A table of two columns called `names` for each side, the side in the first column."""
    return pa.table(
        {
            "side": pa.array(
                [side for side, pair in sides.items() for _ in range(len(pair[0]))], pa.string()
            ),
            names[0]: np.concatenate([pair[0] for pair in sides.values()]),
            names[1]: np.concatenate([pair[1] for pair in sides.values()]),
        }
    )


def column(table: pa.Table, name: str) -> Column:
    """An integer column of a table."""
    values: Column = table.column(name).to_numpy()
    return values


def pair(table: pa.Table, left: str, right: str) -> Pair:
    """Two integer columns of a table."""
    return column(table, left), column(table, right)


def of_sides(table: pa.Table, sides: Sequence[str], names: tuple[str, str]) -> dict[str, Pair]:
    """What `by_side` was made of."""
    side = table.column("side").to_numpy(zero_copy_only=False)
    left, right = pair(table, *names)
    return {name: (left[side == name], right[side == name]) for name in sides}


def write(folder: Path, files: Mapping[str, pa.Table], objects: Mapping[str, Any]) -> None:
    """Writes each table as Parquet and each object as JSON into `folder`, whole or not at all.

    No file takes the place of an older one before all are on the disk.

    Raises `MachineError` when the folder cannot be written.
    """
    drafts = {name: folder / f".{name}.part" for name in (*files, *objects)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in files.items():
            _write_table(table, drafts[name])
        for name, value in objects.items():
            drafts[name].write_text(json.dumps(value, indent=1) + "\n")
        for draft in drafts.values():
            sync(draft)
        for names, suffix in ((files, "parquet"), (objects, "json")):
            for name in names:
                drafts[name].replace(folder / f"{name}.{suffix}")
        sync(folder)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise MachineError(
            f"{folder}: cannot write: {reason}; make room or choose another --out"
        ) from error
    finally:
        if folder.is_dir():
            for draft in drafts.values():
                draft.unlink(missing_ok=True)


def _write_table(table: pa.Table, path: Path) -> None:
    """Columns of integers ascend or differ little: differences take least time and room."""
    integers = [field.name for field in table.schema if pa.types.is_integer(field.type)]
    others = [name for name in table.column_names if name not in integers]
    pq.write_table(
        table,
        path,
        compression="zstd",
        use_dictionary=others or False,
        column_encoding=dict.fromkeys(integers, "DELTA_BINARY_PACKED"),
    )


def read(folder: Path, name: str) -> pa.Table:
    """Reads a table that `write` wrote."""
    return pq.read_table(folder / f"{name}.parquet")
