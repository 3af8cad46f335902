"""The tables of an evaluation as Parquet files.

Arrays are made of buffers, files are read by `pq.ParquetFile`, and columns become NumPy's arrays by
DLPack: `pa.array`, `pa.scalar`, `pa.table`, `pq.read_table` and `to_numpy` first load pandas where
it is installed, which takes longer than everything else here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tailtap.analysis.evaluation.values import (
    Column,
    Columns,
    Histogram,
    Pair,
    Raw,
    require_counts,
)
from tailtap.analysis.evaluation.values import column as as_array
from tailtap.base.errors import InputError
from tailtap.base.files import make_folder, opened
from tailtap.base.foreign import CELL_BYTES, open_file, require_cells
from tailtap.base.writing import refused
from tailtap.records.evaluation import EvaluationRecord, Percentile

_INT, _TEXT = "int64", "string"
_PERCENTILES = {"p": "double", "value": _INT, "low": "int64?", "high": "int64?", "above": _INT,
                "supported": "bool"}  # fmt: skip
_DISTRIBUTION = {"latency_ns": _INT, "count": _INT}
COLUMNS: Mapping[str, Mapping[str, str]] = {
    "percentiles": {**_PERCENTILES, "above": "int64?"},
    "distribution": _DISTRIBUTION,
    "histogram": {"bucket_ns": _INT, "count": _INT},
    "worst": {"latency_ns": _INT, "ingress_ns": _INT, "egress_ns": _INT, "key": _TEXT},
    "losses": {
        "ingress_ns": _INT,
        "position": _INT,
        "length": "int64?",
        "burst": _INT,
        "flow": _TEXT,
        "key": _TEXT,
    },
    "exceedances": {"position": _INT, "ingress_ns": _INT, "latency_ns": _INT},
    "blocks": {"start_ns": _INT, "packets": _INT, "sum_ns": _INT, "max_ns": _INT},
    "gaps": {"side": _TEXT, "bucket_ns": _INT, "count": _INT},
    "rates": {"side": _TEXT, "start_ns": _INT, "packets": _INT},
    "hops": {"hop": _INT, **_PERCENTILES},
    "hops-distribution": {"hop": _INT, **_DISTRIBUTION},
    "hops-worst": {"hop": _INT, "packet": _INT, "latency_ns": "int64?"},
    "stretches": {"start_ns": _INT, "end_ns": _INT},
    "causes-late": {
        **dict.fromkeys(("packet", "ingress_ns", "egress_ns", "latency_ns", "excess_ns"), _INT),
        **{"segment": _INT, "cpu": _INT, "state": _TEXT, "cause": _TEXT, "blamed": _TEXT},
        **{"detail": _TEXT, "stall": _INT},
    },
    "causes-parts": {"packet": _INT, "cause": _TEXT, "detail": _TEXT, "ns": _INT},
    "causes-stalls": {
        **dict.fromkeys(("stall", "cpu", "start_ns", "end_ns"), _INT),
        **{"cause": _TEXT, "detail": _TEXT, "direct": _INT, "behind": _INT},
    },
}
"""The columns that each table has, with their types; a question mark: some of it may be missing."""
MADE = b"tailtap.made"
"""Where a Parquet file says which record it was written with."""


def table(name: str, *columns: Raw | Sequence[int] | Sequence[str] | None) -> pa.Table:
    """The table `name` of its columns, in their order; None stands for one that is left out.

    Where some of a column may be missing, -1 stands for that.
    """
    arrays = {
        title: _array(kind, values)
        for (title, kind), values in zip(COLUMNS[name].items(), columns, strict=True)
        if values is not None
    }
    return _table(arrays)


def _array(kind: str, values: Any) -> pa.Array:
    if kind == _TEXT:
        return _texts(values)
    numbers = as_array(values)
    if kind == _INT:
        return _integers(numbers)
    known = numbers >= 0
    return _integers(np.where(known, numbers, 0), _bits(known.tolist()))


def columns(table: pa.Table) -> list[Any]:
    """What `table` was made of. Raises `ValueError`."""
    return [
        table.column(name).to_pylist() if pa.types.is_string(kind) else _numbers(table, name)
        for name, kind in zip(table.column_names, table.schema.types, strict=True)
    ]


def _numbers(table: pa.Table, name: str) -> Column:
    if not table.column(name).null_count:
        return column(table, name)
    numbers = table.column(name).to_pylist()
    return np.array([-1 if one is None else one for one in numbers], np.int64)


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
    ps = np.array([row.p for row in rows], np.float64)
    supported = _bits(row.supported for row in rows)
    return _table(
        {
            "p": pa.Array.from_buffers(pa.float64(), len(rows), [None, pa.py_buffer(ps)]),
            "value": _integers([row.value for row in rows]),
            "low": _optional([row.low for row in rows]),
            "high": _optional([row.high for row in rows]),
            "above": _integers([row.above for row in rows]),
            "supported": pa.Array.from_buffers(pa.bool_(), len(rows), [None, supported]),
        }
    )


def by_side(name: str, sides: Mapping[str, Pair]) -> pa.Table:
    """The table `name` of two columns for each side."""
    names = [side for side, pair in sides.items() for _ in range(len(pair[0]))]
    left, right = (np.concatenate(column) for column in zip(*sides.values(), strict=True))
    return table(name, names, left, right)


def by_hop(hops: Iterable[pa.Table]) -> pa.Table:
    """The tables of all hops as one, with the number of the hop, from 1, in the first column."""
    found = list(hops)
    numbers = np.repeat(np.arange(1, len(found) + 1), [table.num_rows for table in found])
    return pa.concat_tables(found).add_column(0, "hop", _integers(numbers))


def split_by_hop(table: pa.Table, hops: int) -> list[pa.Table]:
    """What `by_hop` was made of."""
    edges = np.searchsorted(column(table, "hop"), np.arange(1, hops + 2)).tolist()
    return [table.slice(start, end - start) for start, end in pairwise(edges)]


def _table(columns: Mapping[str, pa.Array]) -> pa.Table:
    return pa.Table.from_arrays(list(columns.values()), list(columns))


def _integers(values: Column | Sequence[int], valid: pa.Buffer | None = None) -> pa.Array:
    data = np.ascontiguousarray(values, np.int64)
    return pa.Array.from_buffers(pa.int64(), len(data), [valid, pa.py_buffer(data)])


def _optional(values: Sequence[int | None]) -> pa.Array:
    valid = _bits(value is not None for value in values)
    return _integers([0 if value is None else value for value in values], valid)


def _bits(values: Iterable[bool]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(np.array(list(values), bool), bitorder="little"))


def _texts(texts: Sequence[str | None]) -> pa.Array:
    encoded = [(text or "").encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    if ends[-1] > np.iinfo(np.int32).max:
        return pa.array(texts, pa.string())  # in several pieces
    valid = _bits(text is not None for text in texts) if None in texts else None
    offsets, data = pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(encoded))
    return pa.StringArray.from_buffers(len(texts), offsets, data, valid)


_NUMBERS = {pa.int32(): np.int32, pa.int64(): np.int64, pa.float64(): np.float64}


def from_rows(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """The table of these rows; what one leaves out is missing.

    Raises `ValueError` for a number that its column has no room for.
    """
    try:
        arrays = [_values(one.type, [row.get(one.name) for row in rows]) for one in schema]
    except OverflowError as error:
        raise ValueError(str(error)) from error
    return pa.Table.from_arrays(arrays, schema=schema)


def _values(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    if kind == pa.string():
        return _texts(values)
    valid = _bits(value is not None for value in values) if None in values else None
    if kind == pa.bool_():
        data = _bits(map(bool, values))
    else:
        data = pa.py_buffer(np.array([value or 0 for value in values], _NUMBERS[kind]))
    return pa.Array.from_buffers(kind, len(values), [valid, data])


def column(table: pa.Table, name: str) -> Column:
    """An integer column of a table, in which nothing is missing. Raises `ValueError`."""
    found = table.column(name)
    if not pa.types.is_integer(found.type) or found.null_count:
        raise ValueError(f"{name} is no column of whole numbers")
    parts = [np.from_dlpack(part) for part in found.iterchunks()]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def pair(table: pa.Table, left: str, right: str) -> Pair:
    """Two integer columns of a table."""
    return column(table, left), column(table, right)


def require_distribution(found: Pair) -> None:
    """Raise `ValueError` unless values ascend, and each was there."""
    values, numbers = found
    if np.any(values[1:] <= values[:-1]) or np.any(numbers < 1) or numbers.sum() < 0:
        raise ValueError("distribution.parquet is not in order")


def of_sides(table: pa.Table, sides: Sequence[str]) -> dict[str, Pair]:
    """What `by_side` was made of."""
    names, left, right = columns(table)
    side = np.array(names, np.str_)
    return {name: (left[side == name], right[side == name]) for name in sides}


def write(
    folder: Path,
    files: Mapping[str, pa.Table],
    objects: Mapping[str, Any],
    *,
    below: Path | None = None,
) -> None:
    """Writes each table as Parquet and each object as JSON into `folder`, all of them or none.

    No file takes the place of an older one before all are on the disk. A power cut between two
    renames, or a disk that becomes read-only there, can still leave files of both: so a table and
    the record beside it carry the same mark, and `read` compares them: it is `made` of the object.

    Raises `MachineError` when the folder cannot be written, and `InputError` when one from `below`
    on is a link.
    """
    records = {name: msgspec.to_builtins(value) for name, value in objects.items()}
    mark = next((record["made"] for record in records.values()), None) if files else None
    contents = {
        f"{name}.parquet": partial(_write_table, table, mark) for name, table in files.items()
    }
    contents |= {f"{name}.json": partial(_write_object, value) for name, value in records.items()}
    try:
        make_folder(folder, below=below)
        with opened(folder, below=below) as there:
            there.write_all(contents)
    except OSError as error:
        raise refused(folder, error) from error


def _write_table(table: pa.Table, mark: str | None, file: BinaryIO) -> None:
    """Columns of integers ascend or differ little: differences take least time and room."""
    integers = [field.name for field in table.schema if pa.types.is_integer(field.type)]
    others = [name for name in table.column_names if name not in integers]
    pq.write_table(
        table.replace_schema_metadata({MADE: mark or ""}),
        file,
        compression="zstd",
        use_dictionary=others or False,
        column_encoding=dict.fromkeys(integers, "DELTA_BINARY_PACKED"),
    )


def _write_object(value: Any, file: BinaryIO) -> None:
    file.write(f"{json.dumps(value, indent=1)}\n".encode())


def read_any(path: Path, root: Path) -> pa.Table:
    """The table in a Parquet file below a folder, unless it would fill the memory.

    Raises `OSError`, `pa.ArrowException`, and `ValueError`.
    """
    with open_file(path, root) as content:
        with pq.ParquetFile(content) as file:
            told, kinds = file.metadata, {one.name: one.type for one in file.schema_arrow}
        unpacked = sum(told.row_group(at).total_byte_size for at in range(told.num_row_groups))
        require_cells(path, max(told.num_rows * told.num_columns, unpacked // CELL_BYTES))
        if odd := [name for name, kind in kinds.items() if pa.types.is_nested(kind)]:
            raise ValueError(f"{path}: {odd[0]} holds lists or objects: no table of ours does")
        # A text that is the same in each row is stored once: it is read so, and measured.
        texts = [name for name, kind in kinds.items() if not pa.types.is_primitive(kind)]
        with pq.ParquetFile(content, read_dictionary=texts) as file:
            table: pa.Table = file.read()
    require_cells(path, sum(_text_bytes(table[name]) for name in texts) // CELL_BYTES)
    return table.cast(pa.schema(kinds.items(), table.schema.metadata)) if texts else table


def _text_bytes(column: pa.ChunkedArray) -> int:
    """How many bytes the texts of a column have, each as often as it is there."""
    chunks = [one for one in column.chunks if pa.types.is_dictionary(one.type)]
    import pyarrow.compute as pc  # which takes longer than writing all tables

    lengths = (pc.binary_length(one.dictionary).take(one.indices) for one in chunks)
    return sum(pc.sum(one).as_py() or 0 for one in lengths)


def read(folder: Path, name: str, mark: str | None) -> pa.Table:
    """Reads a table that `write` wrote; `mark` is `made` of the record beside it.

    Raises `OSError` and `pa.ArrowException`, and `ValueError` for what is no table of ours or was
    written with another record.
    """
    path = folder / f"{name}.parquet"
    found = read_any(path, folder.resolve())
    for title, kind in COLUMNS[name].items():
        if title not in found.column_names:
            raise pa.ArrowInvalid(f"{path.name} has no column {title}")
        data = found.column(title)
        if str(data.type) != kind.rstrip("?"):
            raise pa.ArrowInvalid(f"{path.name}: {title} is {data.type}, not {kind}")
        if data.null_count and not kind.endswith("?"):
            raise pa.ArrowInvalid(f"{path.name}: {title} is not whole")
        if title in ("count", "packets"):
            require_counts(column(found, title), f"{path.name}: {title}")
    made = (found.schema.metadata or {}).get(MADE, b"").decode(errors="replace")
    if made != (mark or ""):
        raise ValueError(f"{path.name} was written with another record than the one beside it")
    return found.select(list(COLUMNS[name]))


def _below(table: pa.Table, name: str, least: int) -> bool:
    return bool(np.any(column(table, name) < least))


@contextmanager
def whole(folder: Path) -> Iterator[None]:
    """Say of files of `folder` that are missing or damaged what to do, as `InputError`."""
    try:
        yield
    except OSError as error:
        raise InputError(f"not an evaluation: {error}").at(folder) from error
    except (ValueError, LookupError, TypeError, AttributeError, pa.ArrowException) as error:
        raise InputError(f"not a whole evaluation ({error}); run tailtap evaluate --out again").at(
            folder
        ) from error


def stored(folder: Path, record: EvaluationRecord, sides: Sequence[str]) -> Columns:
    """The columns of an evaluation in a folder: a file is read once, when it is asked for.

    Raises `InputError`, when asked, for a file that is missing or damaged.
    """

    @cache
    def read_columns(name: str) -> Any:
        with whole(folder):
            found = read(folder, name, record.made)
            match name:
                case "gaps" | "rates":
                    return of_sides(found, sides)
                case "exceedances":
                    return record.exceedances.floor_ns, *columns(found)
                case "blocks":
                    return record.blocks.width_ns, *columns(found)
                case "distribution":
                    require_distribution(pair(found, "latency_ns", "count"))
                case "losses" if _below(found, "burst", 1) or _below(found, "position", 0):
                    raise ValueError(
                        "losses.parquet has a burst without a packet, or a position below 0"
                    )
            return columns(found)

    return read_columns
