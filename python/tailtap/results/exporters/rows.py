"""The tables of several runs as Arrow tables, each row with its run's number and slug."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pyarrow as pa

from tailtap.analysis.runs.run import Run
from tailtap.base.duck import connect, require_tables
from tailtap.base.errors import InputError
from tailtap.records.record import as_json
from tailtap.results.database.columns import HOPS, OBJECTS, PARQUET, TABLES, Columns, in_arrow
from tailtap.results.database.database import evaluation_row
from tailtap.results.database.hops import hop_table
from tailtap.results.exporters.packets import all_packets

COLUMNS: Mapping[str, Columns] = {
    **{name: TABLES[name] for name in ("runs", "evaluations", *PARQUET, "warnings", *HOPS)},
    "runs": {
        name: TABLES["runs"][name] for name in TABLES["runs"] if name not in ("slug", "error")
    },
    "packets": TABLES["worst"],
}
"""The columns of each table behind `run` and `slug`. Objects are JSON; times are nanoseconds."""


def tables(packets: bool) -> tuple[str, ...]:
    """The names of all tables; with that of every packet only if `packets`."""
    return tuple(name for name in COLUMNS if packets or name != "packets")


def schema(table: str) -> pa.Schema:
    """All columns of `table`, `run` and `slug` first."""
    return in_arrow({"run": "int32", "slug": "string", **COLUMNS[table]})


def rows(run: Run, table: str) -> pa.Table:
    """The rows of one run in `table`. Raises `InputError` when its evaluation is damaged."""
    columns = COLUMNS[table]
    try:
        if run.database is not None and table != "packets":
            found = _imported(run.database, run.number, table).cast(in_arrow(columns))
        elif table in ("runs", "evaluations", "warnings"):
            found = pa.Table.from_pylist(_records(run, table), in_arrow(columns))
        elif table in HOPS:
            found = hop_table(table, run.stored.hops, run.tables)
        else:
            read = all_packets(run) if table == "packets" else run.tables[table]
            found = read.select(list(columns)).cast(in_arrow(columns))
    except (LookupError, TypeError, pa.ArrowException, duckdb.Error) as error:
        raise InputError(
            f"its {table} are not whole ({str(error).splitlines()[0]}); "
            "run tailtap evaluate --out again"
        ).at(run.folder) from error
    identity = [pa.repeat(run.number, len(found)), pa.repeat(run.slug, len(found))]
    whole = pa.table([*identity, *found.columns], names=["run", "slug", *columns])
    return whole.cast(schema(table))


def _imported(database: Path, number: int, table: str) -> pa.Table:
    """The rows of an imported run, as its database has them."""
    with connect(database, read_only=True) as connection:
        require_tables(connection, database, TABLES)
        query = f"SELECT {', '.join(COLUMNS[table])} FROM {table} WHERE run = ?"
        return connection.sql(query, params=[number]).to_arrow_table()


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
