"""The tables of a line or network that was stamped between its nodes: one row or more for each hop.

Both `results.duckdb` and the exporters store them. Times are integer nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailtap.records.evaluation import HopRecord

_TEXT, _INT, _REAL = pa.string(), pa.int64(), pa.float64()
_HOP: Mapping[str, pa.DataType] = {"hop": pa.int32(), "node": _TEXT, "part": _TEXT}
COUNTS = ("ingress", "egress", "matched", "lost", "reordered", "noncausal")
HOP_COLUMNS: Mapping[str, Mapping[str, pa.DataType]] = {
    "hops": {
        **_HOP,
        **dict.fromkeys(COUNTS, _INT),
        "min_ns": _INT,
        "mean_ns": _REAL,
        "max_ns": _INT,
        "slowest_of_worst": _INT,
    },
    "hop_percentiles": {
        **_HOP,
        "p": _REAL,
        "value": _INT,
        "low": _INT,
        "high": _INT,
        "above": _INT,
        "supported": pa.bool_(),
    },
    "hop_distribution": {**_HOP, "latency_ns": _INT, "count": _INT},
    "hop_worst": {
        **_HOP,
        "key": _TEXT,
        "ingress_ns": _INT,
        "latency_ns": _INT,
        "hop_ns": _INT,
    },
}
"""The columns of each table. In `hop_worst` a packet of `worst` has a row for each hop, where
`latency_ns` is its whole latency and `hop_ns` the part of this hop; NULL where a stamp is missing.
"""
_FILES = {
    "hop_percentiles": "hops",
    "hop_distribution": "hops-distribution",
    "hop_worst": "hops-worst",
}


def hop_table(name: str, hops: Sequence[HopRecord], read: Callable[[str], pa.Table]) -> pa.Table:
    """One of `HOP_COLUMNS`, empty for an evaluation without hops.

    `hops` are those of the evaluation, and `read` gives its Parquet files by their names.
    Raises `LookupError`, `pyarrow.ArrowException` for files that do not fit.
    """
    schema = pa.schema(HOP_COLUMNS[name])
    if not hops:
        return schema.empty_table()
    if name == "hops":
        return pa.Table.from_pylist([_row(hop) for hop in hops], schema)
    found = read(_FILES[name])
    for column in ("node", "part"):
        values = pa.array([getattr(hop, column) for hop in hops], _TEXT)
        # Hops are numbered from 1.
        found = found.append_column(column, values.take(pc.subtract(found["hop"], 1)))
    if name == "hop_worst":
        worst = read("worst").take(found["packet"])
        found = found.rename_columns(
            ["hop_ns" if column == "latency_ns" else column for column in found.column_names]
        )
        for column in ("key", "ingress_ns", "latency_ns"):
            found = found.append_column(column, worst[column])
    return found.select(schema.names).cast(schema)


def _row(hop: HopRecord) -> dict[str, Any]:
    latency = hop.latency_ns
    return {
        "hop": hop.hop,
        "node": hop.node,
        "part": hop.part,
        **{count: getattr(hop.counts, count) for count in COUNTS},
        "min_ns": latency.min,
        "mean_ns": latency.mean,
        "max_ns": latency.max,
        "slowest_of_worst": hop.slowest_of_worst,
    }
