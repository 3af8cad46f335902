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
from tailtap.results.database.columns import HOP_COUNTS, HOPS, in_arrow

_FILES = {
    "hop_percentiles": "hops",
    "hop_distribution": "hops-distribution",
    "hop_worst": "hops-worst",
}


def hop_table(name: str, found: Hops | None, tables: Mapping[str, pa.Table]) -> pa.Table:
    """One of `HOPS`, empty for an evaluation without hops; `tables` are those of it.

    Raises `LookupError`, `pyarrow.ArrowException` for tables that do not fit.
    """
    schema = in_arrow(HOPS[name])
    if found is None:
        return schema.empty_table()
    hops = found.record()
    if name == "hops":
        return pa.Table.from_pylist([_row(hop) for hop in hops], schema)
    rows = tables[_FILES[name]]
    for column in ("node", "part"):
        values = pa.array([getattr(hop, column) for hop in hops], pa.string())
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
        **{count: getattr(hop.counts, count) for count in HOP_COUNTS},
        "min_ns": latency.min,
        "mean_ns": latency.mean,
        "max_ns": latency.max,
        "slowest_of_worst": hop.slowest_of_worst,
    }
