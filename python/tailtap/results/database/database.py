"""Puts run folders into `results.duckdb`; `columns.py` has its tables."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import json
import os
import shutil
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pyarrow as pa

from tailtap.analysis.evaluation import Evaluation
from tailtap.analysis.evaluation.model import EVALUATION
from tailtap.analysis.runs.reader import run_folders
from tailtap.base.duck import (
    connect,
    locked_by,
    log_of,
    require_file,
    require_tables,
    says_damaged,
    says_locked,
)
from tailtap.base.errors import InputError, Interrupted, MachineError, TailtapError
from tailtap.base.files import opened as opened_folder
from tailtap.base.files import sync
from tailtap.base.foreign import open_file, storable
from tailtap.base.writing import REMEDIES, error_number, reason_of, refused, writing
from tailtap.records.record import as_json, read
from tailtap.records.run import RunRecord
from tailtap.results.database.columns import HOPS, OBJECTS, PARQUET, TABLES, in_arrow, in_duckdb
from tailtap.results.database.counts import count_rows
from tailtap.results.database.events import event_rows
from tailtap.results.database.hops import hop_table

VALUES = ("slug", "repeat", "status", "valid", "error", "started", "finished")
"""Columns of `runs` that hold values of the record as they are."""
KEPT = "the run folders are kept"


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
    with opened(database, KEPT) as connection:
        for run, evaluation in runs:
            connection.begin()
            for table in TABLES:
                connection.execute(f"DELETE FROM {table} WHERE run = ?", [run.number])
            _insert(connection, run, evaluation)
            connection.commit()


@contextlib.contextmanager
def kept_current(folder: Path) -> Iterator[None]:
    """Refresh the databases of what the block makes in `folder`, also after an interruption."""
    try:
        yield
    except Interrupted:
        with contextlib.suppress(TailtapError):
            _refresh_all(folder)
        raise
    _refresh_all(folder)


def _refresh_all(folder: Path) -> None:
    """Those of an experiment, and of the runs at the rates that a search found."""
    for home in (folder, folder / "latency"):
        if (home / "runs").is_dir():
            refresh(home)


def refresh(folder: Path) -> None:
    """Have `results.duckdb` hold what the run folders of an experiment's folder hold."""
    database = folder / "results.duckdb"
    begin_anew(database)
    add_runs(database, run_folders(folder))


def begin_anew(database: Path) -> list[Path]:
    """Leaves nothing but the imported runs in the tables of the database.

    After a power failure a run can be finished but not yet stored. Its run folder is right;
    imported runs, and tables that others made in the database, are nowhere else. So what cannot be
    read is only put aside, under a name of its own. Returns the files that were; the database is
    missing then. Raises `MachineError` when the database cannot be opened for another reason,
    `InputError` for one of another version, and leaves everything as it was.
    """
    require_file(database)
    if not database.exists():
        return put_aside(database)  # a log alone
    try:
        with connect(database, read_only=True) as connection:
            require_tables(connection, database, TABLES)
            _require_columns(connection, database)
            _read_imported(connection)
        with _writable(database) as connection:
            connection.execute(_schema())
            connection.begin()
            for table in TABLES:
                connection.execute(
                    f"DELETE FROM {table} "
                    "WHERE run NOT IN (SELECT run FROM runs WHERE status = 'imported')"
                )
            connection.commit()
    except duckdb.Error as error:
        if not says_damaged(error):
            raise refused_by(database, error, "nothing of it was changed") from error
        return put_aside(database)
    return []


@contextlib.contextmanager
def opened(
    database: Path,
    kept: str,
    *,
    tables: Collection[str] = TABLES,
    schema: str | None = None,
    anew: bool = False,
) -> Iterator[duckdb.DuckDBPyConnection]:
    """The database with its tables, made if missing, to be written.

    With `anew` all that is done takes effect at the end, or nothing of it. Raises `MachineError`
    for whatever DuckDB cannot do, which ends with what is `kept`, and `InputError` for links.
    """
    try:
        with _writable(database, anew=anew) as connection:
            require_tables(connection, database, tables)
            connection.execute(_schema() if schema is None else schema)
            yield connection
    except (duckdb.Error, OSError) as error:
        raise refused_by(database, error, kept) from error


@contextlib.contextmanager
def _writable(database: Path, *, anew: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
    """The database itself, or a copy that takes its place at the end.

    A copy where another program only reads it: its lock needs no more, and keeps nobody out.
    """
    require_file(database)
    there = database.is_file()
    lock = locked_by(database) if there else None
    if lock == fcntl.F_WRLCK or log_of(database).exists() or not (anew or lock is not None):
        with connect(database) as connection:
            yield connection
        return
    with opened_folder(database.parent) as folder:
        draft, file = folder.draft(0o600)
        place = database.with_name(draft)
        try:
            with file:
                if there:
                    with open_file(database) as source:
                        shutil.copyfileobj(source, file)
            if not there:
                place.unlink()  # no database is empty: DuckDB makes it
            with connect(place) as connection:
                yield connection
                connection.execute("CHECKPOINT")
            if not there and database.exists():
                raise FileExistsError(errno.EEXIST, "another program made it meanwhile")
            if there:
                place.chmod(stat.S_IMODE(database.stat().st_mode))
                with contextlib.suppress(PermissionError):
                    os.chown(place, database.stat().st_uid, database.stat().st_gid)
            sync(place)
            folder.rename(draft, database.name)
            folder.sync()
        finally:
            folder.remove(draft)
            folder.remove(log_of(place).name)


def put_aside(database: Path) -> list[Path]:
    """Gives the files of a database a name that nobody has, and returns them."""
    log = log_of(database)
    there = [path for path in (database, log) if path.exists()]
    if not there:
        return []
    for number in itertools.count(1):
        damaged = database.with_name(f"{database.name}.damaged-{number}")
        if not damaged.exists() and not log_of(damaged).exists():
            break
    names = {database: damaged, log: log_of(damaged)}
    with writing(database, "put it elsewhere", doing="rename"):
        for path in there:
            path.rename(names[path])
        sync(database.parent)
    return [names[path] for path in there]


def _schema() -> str:
    return in_duckdb() + files(__package__).joinpath("views.sql").read_text()


def _require_columns(connection: duckdb.DuckDBPyConnection, database: Path) -> None:
    """Raises `InputError` where one of our tables lacks a column."""
    query = "SELECT table_name, column_name FROM duckdb_columns() WHERE schema_name = 'main'"
    there = connection.execute(query).fetchall()
    for table in {table for table, _ in there} & set(TABLES):
        for column in TABLES[table]:
            if (table, column) not in there:
                raise InputError(
                    f"its table {table} has no column {column}: another version of "
                    "tailtap made it: rename it"
                ).at(database)


def _read_imported(connection: duckdb.DuckDBPyConnection) -> None:
    """Reads all that is kept of a database, as its damage shows only where it is read."""
    there = connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()
    for table in (table for table in TABLES if (table,) in there and ("runs",) in there):
        connection.execute(
            f"SELECT bit_xor(hash(kept)) FROM {table} AS kept "
            "WHERE run IN (SELECT run FROM runs WHERE status = 'imported')"
        ).fetchall()


def refused_by(database: Path, error: Exception, kept: str) -> MachineError:
    """The error for what DuckDB could not do, on one line."""
    reason = reason_of(error)
    if says_damaged(error):
        remedy = "it is damaged: rename it, and repeat this"
    elif says_locked(error):
        remedy = "another program has it open: close it there"
    elif isinstance(error, duckdb.OutOfMemoryException):
        remedy = "it needs more memory: end other programs"
    elif isinstance(error, duckdb.FatalException) and error_number(error) is None:
        remedy = f"{REMEDIES[errno.EIO]} or use another folder"  # it says that, and no more
    elif error_number(error) is not None:
        remedy = refused(database, error).or_elsewhere("use another folder").remedy
    else:
        remedy = "open it with the program that made it, or use another folder"
    return MachineError(f"cannot write: {reason}: {remedy}; {kept}").at(database)


def _record(folder: Path) -> RunRecord:
    try:
        return read(folder / "run.json", RunRecord)
    except InputError as error:
        raise InputError(f"not a run folder: {error}").at(folder) from error


def _insert(connection: duckdb.DuckDBPyConnection, run: RunRecord, evaluation: Path) -> None:
    number, told = run.number, as_json(run)
    warnings = told["warnings"]
    row = {
        "run": number,
        "experiment": run.name,
        **{name: told[name] for name in VALUES},
        **{name: None if told[name] is None else json.dumps(told[name]) for name in OBJECTS},
    }
    put(connection, "runs", row)
    if (evaluation / EVALUATION).exists():
        found = Evaluation.load(evaluation)
        tables = found.to_arrow()
        warnings += msgspec.to_builtins(found.warnings)
        put(connection, "evaluations", {"run": number, **evaluation_row(found)})
        for table in PARQUET:
            insert(connection, table, number, tables[table])
        for table in HOPS if found.hops else ():
            insert(connection, table, number, hop_table(table, found.hops, tables))
        for more in (_insert_causes, _insert_undisturbed):
            try:
                more(connection, number, evaluation.parent, found)
            except InputError as error:  # it is there, and cannot be read
                warnings.append({"code": "file-damaged", "message": str(error)})
    for row in event_rows(run):
        put(connection, "events", {"run": number, **row})
    for warning in warnings:
        put(connection, "warnings", {"run": number, **warning})
    if counts := list(count_rows(run)):
        rows = pa.Table.from_pylist(counts, in_arrow(TABLES["counts"]))
        insert(connection, "counts", number, rows)


def evaluation_row(found: Evaluation) -> dict[str, Any]:
    """The row of an evaluation in `evaluations`, less the run."""
    return {
        "key": found.key,
        **msgspec.structs.asdict(found.counts),
        "min_ns": found.min,
        "mean_ns": found.mean,
        "max_ns": found.max,
    }


def put(connection: duckdb.DuckDBPyConnection, table: str, row: Mapping[str, object]) -> None:
    """Puts one row in, of which only the table's columns count."""
    names = [name for name in ("run", *TABLES[table]) if name in row]
    connection.execute(
        f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})",
        storable([row[name] for name in names]),
    )


def insert(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    number: int,
    rows: pa.Table,
    chosen: str = "*",
) -> None:
    """Puts in the rows of a run; what is `chosen` of them is SQL."""
    connection.register("found", rows)
    connection.execute(
        f"INSERT INTO {table} BY NAME SELECT ? AS run, {chosen} FROM found", [number]
    )
    connection.unregister("found")


def _insert_causes(
    connection: duckdb.DuckDBPyConnection, number: int, folder: Path, evaluation: Evaluation
) -> None:
    """Puts in what `tailtap explain` found out, unless the run was evaluated anew since."""
    if not (folder / "causes.json").is_file():
        return  # reading them takes a module that takes long to load
    from tailtap.analysis.causes.stored import read_stored

    stored = read_stored(folder, evaluation.percentile(0.5).value)
    if stored is None:
        return
    content, (late, _, stalls) = stored
    for row in content.causes:
        values = {**msgspec.structs.asdict(row), "run": number, "knobs": json.dumps(row.knobs)}
        put(connection, "causes", values)
    unknown = "nullif(cpu, -1) AS cpu, nullif(stall, 0) AS stall"
    for table, rows, chosen in (
        ("stalls", stalls, "*"),
        ("late_packets", late, f"* REPLACE ({unknown})"),
    ):
        insert(connection, table, number, rows, chosen)


def _insert_undisturbed(
    connection: duckdb.DuckDBPyConnection, number: int, folder: Path, evaluation: Evaluation
) -> None:
    """Puts in the percentiles without pauses from outside, where they are known."""
    from tailtap.analysis.undisturbed import read_undisturbed

    stored = read_undisturbed(folder, evaluation)
    if stored is None:
        return
    told = stored.record
    values = {
        **msgspec.structs.asdict(told),
        "run": number,
        "p_value": told.independence.p_value,
        "pauses": json.dumps(msgspec.to_builtins(told.pauses)),
    }
    put(connection, "undisturbed", values)
    if stored.evaluation is not None:
        rows = stored.evaluation.to_arrow()["percentiles"]
        insert(connection, "undisturbed_percentiles", number, rows)
