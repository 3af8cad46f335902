"""The tables of a line or network that was stamped between its nodes: one row or more for each hop.

Both `results.duckdb` and the exporters store them. Times are integer nanoseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailtap.analysis.evaluation.hops import Hops
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


def hop_table(name: str, found: Hops | None, tables: Mapping[str, pa.Table]) -> pa.Table:
    """One of `HOP_COLUMNS`, empty for an evaluation without hops; `tables` are those of it.

    Raises `LookupError`, `pyarrow.ArrowException` for tables that do not fit.
    """
    schema = pa.schema(HOP_COLUMNS[name])
    if found is None:
        return schema.empty_table()
    hops = found.record()
    if name == "hops":
        return pa.Table.from_pylist([_row(hop) for hop in hops], schema)
    rows = tables[_FILES[name]]
    for column in ("node", "part"):
        values = pa.array([getattr(hop, column) for hop in hops], _TEXT)
        # Hops are numbered from 1.
        rows = rows.append_column(column, values.take(pc.subtract(rows["hop"], 1)))
    if name == "hop_worst":
        worst = tables["worst"].take(rows["packet"])
        rows = rows.rename_columns(
            ["hop_ns" if column == "latency_ns" else column for column in rows.column_names]
        )
        for column in ("key", "ingress_ns", "latency_ns"):
            rows = rows.append_column(column, worst[column])
    return rows.select(schema.names).cast(schema)


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
