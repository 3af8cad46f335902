"""Puts run folders into `results.duckdb`; `schema.sql` describes the tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq

from tailtap.errors import InputError, MachineError
from tailtap.store.hops import HOP_COLUMNS, hop_table

#: Tables that an evaluation holds as Parquet files of the same columns, less the run.
PARQUET = ("percentiles", "distribution", "histogram", "worst", "gaps", "rates")
#: Columns of `runs` that hold JSON.
OBJECTS = (
    "variables",
    "parameters",
    "generator",
    "taps",
    "platform",
    "forwarder",
    "counters",
    "environment",
)
#: Tables of what `tailtap explain` found out.
CAUSES = ("causes", "stalls", "late_packets")
TABLES = ("runs", "evaluations", *PARQUET, "warnings", *HOP_COLUMNS, *CAUSES)


def add_run(database: Path, folder: Path) -> None:
    """Puts a run folder into the database, and replaces what it held of that run.

    The database is made if missing. A run without an evaluation (failed, interrupted) is stored
    with its status and warnings. Raises `InputError` when the folder is no run folder,
    `MachineError` when the database cannot be written.
    """
    add_runs(database, [folder])


def add_runs(database: Path, folders: Sequence[Path]) -> None:
    """Puts run folders into the database, each as `add_run` does, whole or not at all."""
    runs = [(_record(folder), folder / "evaluation") for folder in folders]
    try:
        with duckdb.connect(str(database)) as connection:
            connection.execute(files(__package__).joinpath("schema.sql").read_text())
            for run, evaluation in runs:
                connection.begin()
                for table in TABLES:
                    connection.execute(f"DELETE FROM {table} WHERE run = ?", [run["number"]])
                _insert(connection, run, evaluation)
                connection.commit()
    except (duckdb.IOException, duckdb.FatalException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise MachineError(f"{database}: cannot write: {reason}; the run folder is kept") from error


def begin_anew(database: Path) -> bool:
    """Removes all but the imported runs from the database, and makes its tables anew.

    After a power failure a run can be finished but not yet stored, or half stored. Its run folder
    is right; imported runs are nowhere else. Returns False when the database was too damaged to
    keep them and was removed. Raises `MachineError` when another program has it open.
    """
    log = database.with_name(f"{database.name}.wal")
    draft = database.with_name(f".{database.name}.draft")
    draft.unlink(missing_ok=True)
    if not database.exists():
        log.unlink(missing_ok=True)
        return True
    whole = True
    try:
        with duckdb.connect(str(draft)) as connection:
            connection.execute(files(__package__).joinpath("schema.sql").read_text())
            escaped = str(database).replace("'", "''")
            connection.execute(f"ATTACH '{escaped}' AS old")
            there = connection.execute(
                "SELECT table_name FROM duckdb_tables() WHERE database_name = 'old'"
            ).fetchall()
            # One that an earlier version made has fewer tables.
            for table in (table for table in TABLES if (table,) in there):
                connection.execute(
                    f"INSERT INTO {table} BY NAME SELECT * FROM old.{table} "
                    "WHERE run IN (SELECT run FROM old.runs WHERE status = 'imported')"
                )
            connection.execute("DETACH old")  # which empties its log
        log.unlink(missing_ok=True)
        draft.replace(database)
    except duckdb.Error as error:
        reason = str(error).splitlines()[0]
        # DuckDB has no class of its own for this.
        if "lock" in reason:
            raise MachineError(
                f"{database}: another program has it open: {reason}; close it there"
            ) from error
        whole = False
        log.unlink(missing_ok=True)
        database.unlink()
    finally:
        draft.unlink(missing_ok=True)
        draft.with_name(f"{draft.name}.wal").unlink(missing_ok=True)
    return whole


def _record(folder: Path) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads((folder / "run.json").read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"{folder}: not a run folder: {error}") from error
    return record


def _insert(connection: duckdb.DuckDBPyConnection, run: dict[str, Any], evaluation: Path) -> None:
    number = run["number"]
    warnings = list(run["warnings"])
    row = {
        "run": number,
        "experiment": run["name"],
        **{name: run[name] for name in ("slug", "repeat", "status")},
        **{name: run.get(name) for name in ("error", "started", "finished")},
        **{name: None if run.get(name) is None else json.dumps(run[name]) for name in OBJECTS},
    }
    connection.execute(
        f"INSERT INTO runs ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})",
        list(row.values()),
    )
    if (evaluation / "evaluation.json").exists():
        found = json.loads((evaluation / "evaluation.json").read_text())
        warnings += found["warnings"]
        latency = found["latency_ns"]
        row = {
            "run": number,
            "key": found["key"],
            **found["counts"],
            **{f"{name}_ns": latency[name] for name in ("min", "mean", "max")},
        }
        connection.execute(
            f"INSERT INTO evaluations ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})",
            list(row.values()),
        )
        for table in PARQUET:
            connection.execute(
                f"INSERT INTO {table} BY NAME SELECT ? AS run, * FROM read_parquet(?)",
                [number, str(evaluation / f"{table}.parquet")],
            )
        _insert_hops(connection, number, evaluation, found)
        _insert_causes(connection, number, evaluation.parent)
    if warnings:
        connection.executemany(
            "INSERT INTO warnings VALUES (?, ?, ?)",
            [[number, warning["code"], warning["message"]] for warning in warnings],
        )


def _insert_hops(
    connection: duckdb.DuckDBPyConnection, number: int, evaluation: Path, meta: dict[str, Any]
) -> None:
    """Puts in what packets took for each hop, of a run that was stamped between nodes."""
    for table in HOP_COLUMNS if meta.get("hops") else ():
        found = hop_table(table, meta, lambda name: pq.read_table(evaluation / f"{name}.parquet"))
        connection.register("found", found)
        connection.execute(f"INSERT INTO {table} BY NAME SELECT ? AS run, * FROM found", [number])
        connection.unregister("found")


def _insert_causes(connection: duckdb.DuckDBPyConnection, number: int, folder: Path) -> None:
    """Puts in what `tailtap explain` found out, unless the run was evaluated anew since."""
    if not (folder / "causes.json").is_file():
        return
    from tailtap.cause.stored import read_stored

    median = connection.execute(
        "SELECT value FROM percentiles WHERE run = ? AND p = 0.5", [number]
    ).fetchone()
    stored = read_stored(folder, median[0]) if median else None
    if stored is None:
        return
    content, (late, _, stalls) = stored
    columns = [name for name, *_ in connection.execute("DESCRIBE causes").fetchall()]
    for row in content["causes"]:
        values = {**row, "run": number, "knobs": json.dumps(row["knobs"])}
        connection.execute(
            f"INSERT INTO causes VALUES ({', '.join('?' * len(columns))})",
            [values[name] for name in columns],
        )
    unknown = "nullif(cpu, -1) AS cpu, nullif(stall, 0) AS stall"
    for table, rows, chosen in (
        ("stalls", stalls, "*"),
        ("late_packets", late, f"* REPLACE ({unknown})"),
    ):
        connection.register("explained", rows)
        connection.execute(
            f"INSERT INTO {table} BY NAME SELECT ? AS run, {chosen} FROM explained", [number]
        )
        connection.unregister("explained")
