"""The tables of results and their columns, as `results.duckdb` and the exporters have them.

Times are integer nanoseconds. A type with a question mark may be NULL. Each table begins with
`run`, the number of the run.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from tailtap.analysis.evaluation import tables
from tailtap.records.evaluation import Counts

Columns = Mapping[str, str]
_INT, _MAYBE, _TEXT = "int64", "int64?", "string"
OBJECTS = (
    "variables", "parameters", "generator", "taps", "platform", "forwarder", "counters",
    "environment",
)  # fmt: skip
"""Columns of `runs` that hold JSON."""
PARQUET = ("percentiles", "distribution", "histogram", "worst", "losses", "gaps", "rates")
"""Tables that an evaluation holds as Parquet files of the same columns, less the run."""
FAILED = ("errors", "errors_timed")
"""Requests that failed, as other tools tell, and how many of them may be among the latencies."""
_EXTREMES = {"min_ns": _INT, "mean_ns": "double", "max_ns": _INT}
_HOP = {"hop": "int32", "node": _TEXT, "part": _TEXT}
HOP_COUNTS = ("ingress", "egress", "matched", "lost", "reordered", "noncausal")
HOPS: Mapping[str, Columns] = {
    "hops": {
        **_HOP,
        **dict.fromkeys(HOP_COUNTS, _INT),
        **_EXTREMES,
        "slowest_of_worst": _INT,
    },
    "hop_percentiles": {**_HOP, **tables.COLUMNS["percentiles"]},
    "hop_distribution": {**_HOP, **tables.COLUMNS["distribution"]},
    "hop_worst": {**_HOP, "key": _TEXT, "ingress_ns": _INT, "latency_ns": _INT, "hop_ns": _MAYBE},
}
"""Those of runs that were stamped between their nodes; `part` is ``node``, or ``queue`` of the
node. In `hop_worst` a packet of `worst` has a row for each hop, where `latency_ns` is its whole
latency and `hop_ns` the part of this hop; NULL where a stamp is missing.
"""
CAUSES: Mapping[str, Columns] = {
    "causes": {
        **dict.fromkeys(("cause", "detail", "claim"), _TEXT),
        **dict.fromkeys(("packets", "behind", "stalls", "delay_ns", "worst_ns"), _INT),
        **{"share": "double", "beyond_chance": "double?", "p_value": "double?"},
        **{"shifts": _MAYBE, "knobs": "json"},
    },
    "stalls": tables.COLUMNS["causes-stalls"],
    "late_packets": {
        **dict.fromkeys(("packet", "ingress_ns", "egress_ns", "latency_ns", "excess_ns"), _INT),
        **{"cpu": _MAYBE, "state": _TEXT, "cause": _TEXT, "blamed": _TEXT, "detail": _TEXT},
        **{"stall": _MAYBE, "segment": _MAYBE},
    },
}
"""What `tailtap explain` found out."""
UNDISTURBED: Mapping[str, Columns] = {
    "undisturbed": {
        **{"shown": "bool", "reason": "string?", "words": _TEXT, "pauses": "json"},
        **dict.fromkeys(("of_ns", "left_out_ns", "stretches", "packets", "left_out"), _INT),
        "p_value": "double?",
    },
    "undisturbed_percentiles": tables.COLUMNS["percentiles"],
}
"""What is left of runs without the time around pauses from outside."""
TABLES: Mapping[str, Columns] = {
    "runs": {
        **{"slug": _TEXT, "experiment": _TEXT, "repeat": "int32", "status": _TEXT},
        **{"valid": "bool?", "error": "string?", "started": "time?", "finished": "time?"},
        **{name: "json" if name in OBJECTS[:2] else "json?" for name in OBJECTS},
    },
    "evaluations": {
        "key": _TEXT,
        # Results of others do not say all of them.
        **{name: f"{kind}?" for name, kind in
           {**dict.fromkeys((*Counts.__struct_fields__, *FAILED), _INT), **_EXTREMES}.items()},
    },
    **{name: tables.COLUMNS[name] for name in PARQUET},
    "percentiles": {**tables.COLUMNS["percentiles"], "above": _MAYBE},
    "warnings": {"code": _TEXT, "message": _TEXT},
    "events": {
        **{"event": "int32", "name": "string?", "place": "string?", "command": "json?"},
        **dict.fromkeys(("at_ns", "begin_ns", "end_ns", "status"), _MAYBE),
        "output": "string?",
        **dict.fromkeys(("blocked_ns", "blocked_least_ns", "blocked_most_ns"), _MAYBE),
        **dict.fromkeys(("time_ns", "packets", "lost"), _INT),
        **dict.fromkeys(("p50_ns", "p99_ns", "p999_ns", "max_ns"), _MAYBE),
    },
    "counts": {
        **dict.fromkeys(("during", "scope"), _TEXT),
        **{"cpu": "int32?", "counter": _TEXT, "asked": "bool", "count": _MAYBE},
        **{"estimated": "bool", "elapsed_ns": _INT, "packets": _MAYBE},
    },
    **HOPS,
    **CAUSES,
    **UNDISTURBED,
}  # fmt: skip
"""The tables of `results.duckdb`. In `events` the run's other time has event 0, which is nothing's.
`counts` has a row of each counter for the scope in which it was counted, where `cpu` is NULL, and
for each CPU.
"""
_DUCKDB = {
    "int32": "INTEGER", "int64": "BIGINT", "double": "DOUBLE", "bool": "BOOLEAN",
    "string": "VARCHAR", "json": "JSON", "time": "TIMESTAMPTZ",
}  # fmt: skip
_ARROW = {
    "int32": pa.int32(), "int64": pa.int64(), "double": pa.float64(), "bool": pa.bool_(),
    "string": pa.string(), "json": pa.string(), "time": pa.string(),
}  # fmt: skip


def in_duckdb() -> str:
    """The statements that make the tables, where they are not there."""
    statements = []
    for table, columns in TABLES.items():
        rows = [
            "run INTEGER " + ("PRIMARY KEY" if table in ("runs", "evaluations") else "NOT NULL")
        ]
        rows += [
            f"{name} {_DUCKDB[kind.rstrip('?')]}{'' if kind.endswith('?') else ' NOT NULL'}"
            for name, kind in columns.items()
        ]
        statements.append(f"CREATE TABLE IF NOT EXISTS {table} ({', '.join(rows)});\n")
    return "".join(statements)


def in_arrow(columns: Columns) -> pa.Schema:
    """The columns of a table of Arrow."""
    return pa.schema({name: _ARROW[kind.rstrip("?")] for name, kind in columns.items()})
