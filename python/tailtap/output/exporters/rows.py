"""The tables of several runs as Arrow tables, each row with its run's number and slug."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pyarrow as pa

from tailtap.analysis.runs.run import Run
from tailtap.output.database.database import OBJECTS, evaluation_row
from tailtap.output.database.hops import HOP_COLUMNS, hop_table
from tailtap.output.exporters.packets import all_packets
from tailtap.records.errors import InputError
from tailtap.records.evaluation import Counts
from tailtap.records.record import as_json

_TEXT, _INT, _REAL = pa.string(), pa.int64(), pa.float64()
#: The columns of each table behind `run` and `slug`. Objects are JSON; times are nanoseconds.
COLUMNS: dict[str, dict[str, pa.DataType]] = {
    "runs": {
        "experiment": _TEXT,
        "repeat": _INT,
        "status": _TEXT,
        "valid": pa.bool_(),
        "started": _TEXT,
        "finished": _TEXT,
        **dict.fromkeys(OBJECTS, _TEXT),
    },
    "evaluations": {
        "key": _TEXT,
        **dict.fromkeys(Counts.__struct_fields__, _INT),
        "min_ns": _INT,
        "mean_ns": _REAL,
        "max_ns": _INT,
    },
    "percentiles": {
        "p": _REAL,
        "value": _INT,
        "low": _INT,
        "high": _INT,
        "above": _INT,
        "supported": pa.bool_(),
    },
    "distribution": {"latency_ns": _INT, "count": _INT},
    "histogram": {"bucket_ns": _INT, "count": _INT},
    "worst": {"latency_ns": _INT, "ingress_ns": _INT, "egress_ns": _INT, "key": _TEXT},
    "losses": {
        "ingress_ns": _INT,
        "position": _INT,
        "length": _INT,
        "burst": _INT,
        "flow": _TEXT,
        "key": _TEXT,
    },
    "gaps": {"side": _TEXT, "bucket_ns": _INT, "count": _INT},
    "rates": {"side": _TEXT, "start_ns": _INT, "packets": _INT},
    "warnings": {"code": _TEXT, "message": _TEXT},
    **{name: dict(columns) for name, columns in HOP_COLUMNS.items()},
    "packets": {"latency_ns": _INT, "ingress_ns": _INT, "egress_ns": _INT, "key": _TEXT},
}


def tables(packets: bool) -> tuple[str, ...]:
    """The names of all tables; with that of every packet only if `packets`."""
    return tuple(name for name in COLUMNS if packets or name != "packets")


def schema(table: str) -> pa.Schema:
    """All columns of `table`, `run` and `slug` first."""
    return pa.schema({"run": pa.int32(), "slug": _TEXT, **COLUMNS[table]})


def rows(run: Run, table: str) -> pa.Table:
    """The rows of one run in `table`. Raises `InputError` when its evaluation is damaged."""
    columns = COLUMNS[table]
    try:
        if table in ("runs", "evaluations", "warnings"):
            found = pa.Table.from_pylist(_records(run, table), pa.schema(columns))
        elif table in HOP_COLUMNS:
            found = hop_table(table, run.stored.hops, run.tables)
        else:
            read = all_packets(run) if table == "packets" else run.tables[table]
            found = read.select(list(columns)).cast(pa.schema(columns))
    except (LookupError, TypeError, pa.ArrowException) as error:
        raise InputError(
            f"{run.folder}: its {table} are not whole ({str(error).splitlines()[0]}); "
            "run tailtap evaluate --out again"
        ) from error
    identity = [pa.repeat(run.number, len(found)), pa.repeat(run.slug, len(found))]
    whole = pa.table([*identity, *found.columns], names=["run", "slug", *columns])
    return whole.cast(schema(table))


def _records(run: Run, table: str) -> list[dict[str, Any]]:
    match table:
        case "runs":
            return [_run_record(run)]
        case "evaluations":
            return [evaluation_row(run.stored)]
        case _:
            own = run.record.warnings if run.record else []
            return [msgspec.structs.asdict(one) for one in (*own, *run.stored.warnings)]


def _run_record(run: Run) -> dict[str, Any]:
    record = as_json(run.record) if run.record else {}
    objects = {
        name: None if record.get(name) is None else json.dumps(record[name]) for name in OBJECTS
    }
    return {
        "experiment": run.experiment,
        "repeat": run.repeat,
        "status": "done",
        "valid": run.valid,
        "started": record.get("started"),
        "finished": record.get("finished"),
        **objects,
    }
