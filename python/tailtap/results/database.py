"""`results.duckdb`: the run folders of an experiment as tables, to be asked by SQL.

A cache: whatever becomes of it, it is made anew of the run folders. `tables.py` has the rows of a
run, and `database.sql` the views.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import duckdb
import pyarrow as pa

from tailtap.analysis.runs.reader import DATABASE, read_runs
from tailtap.analysis.runs.run import Run
from tailtap.base.duck import connect, log_of, refused_by, require_file, require_tables
from tailtap.base.errors import InputError
from tailtap.base.files import opened, sync
from tailtap.records.record import mark
from tailtap.results.tables import PARTS, TABLES, in_duckdb

MADE_OF = "made_of"
"""The table that says of which files, and by which tables, the rows of a run were made."""
EARLIER = "results-earlier.duckdb"
"""What a database is called that holds what no run folder has."""
SCHEMA = (
    in_duckdb()
    + f"CREATE TABLE IF NOT EXISTS {MADE_OF} (run INTEGER PRIMARY KEY, mark VARCHAR NOT NULL);\n"
    + files(__package__).joinpath("database.sql").read_text()
)
VERSION = mark(SCHEMA)
DAMAGED = (InputError, LookupError, TypeError, ValueError, pa.ArrowException)
log = logging.getLogger("tailtap")


def refresh(folder: Path) -> None:
    """Have `results.duckdb` hold what the run folders of an experiment's folder hold.

    Runs whose files are as they were are left as they are. A database that is missing or damaged,
    that another program has open or another version made, is made anew. Raises `MachineError` when
    it cannot be written, and `InputError` where it is a link.
    """
    database = folder / DATABASE
    require_file(database)
    runs = {run.number: run for run in read_runs(folder).runs if run.record is not None}
    marks = {number: _mark(run) for number, run in runs.items()}
    if database.is_file():
        with contextlib.suppress(duckdb.Error, InputError), connect(database) as connection:
            require_tables(connection, database, (*TABLES, MADE_OF))
            known = dict(connection.execute(f"SELECT run, mark FROM {MADE_OF}").fetchall())
            if all(text.startswith(VERSION) for text in known.values()):
                for number in known.keys() - marks.keys():
                    _forget(connection, number)
                new = [number for number, text in marks.items() if known.get(number) != text]
                _put(connection, {number: runs[number] for number in new}, marks)
                return
    try:
        _make_anew(database, runs, marks)
    except (duckdb.Error, OSError) as error:
        raise refused_by(database, error, "the run folders are kept") from error


def _make_anew(database: Path, runs: Mapping[int, Run], marks: Mapping[int, str]) -> None:
    with opened(database.parent) as folder:
        draft, file = folder.draft()
        file.close()
        place = database.with_name(draft)
        place.unlink()  # no database is empty: DuckDB makes it
        try:
            with connect(place) as connection:
                connection.execute(SCHEMA)
                _put(connection, runs, marks)
                connection.execute("CHECKPOINT")
            sync(place)
            if _holds_more(database, {run.slug for run in runs.values()}):
                folder.rename(database.name, EARLIER)
                log.warning(
                    f"{database}: what an earlier version imported is in it alone: it is kept as "
                    f"{EARLIER}; import it again, so that reports show it"
                )
            folder.remove(log_of(database).name)
            folder.rename(draft, database.name)
            folder.sync()
        finally:
            folder.remove(draft)
            folder.remove(log_of(place).name)


def _holds_more(database: Path, slugs: set[str]) -> bool:
    """Whether imported runs are in a database, and in no run folder: earlier versions had these."""
    if not database.is_file():
        return False
    try:
        with connect(database, read_only=True) as connection:
            require_tables(connection, database, ("runs",))
            query = "SELECT slug FROM runs WHERE status = 'imported'"
            return not {slug for (slug,) in connection.execute(query).fetchall()} <= slugs
    except (duckdb.Error, InputError):
        return False


def _mark(run: Run) -> str:
    """What changes whenever a file of a run does."""
    folder = run.own_folder
    places = [] if folder is None else [folder, folder / "evaluation", folder / "undisturbed"]
    there = [path for place in places if place.is_dir() for path in sorted(place.iterdir())]
    known = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in there]
    return f"{VERSION}-{mark(run.slug, known)}"


def _put(
    connection: duckdb.DuckDBPyConnection, runs: Mapping[int, Run], marks: Mapping[int, str]
) -> None:
    """Put runs in, each whole or not at all. What of one is damaged is a warning of it."""
    for number, one in runs.items():
        run = replace(one)  # so that what is read of it does not stay in memory
        connection.begin()
        _forget(connection, number)
        told = [run.failure] if run.failure and not run.error else []
        for part in PARTS.values():
            try:
                found = part(run)
            except DAMAGED as error:
                told.append(str(error))
                continue
            for table, rows in found.items():
                _insert(connection, table, number, rows)
        for text in told:
            row = [number, "file-damaged", text]
            connection.execute("INSERT INTO warnings VALUES (?, ?, ?)", row)
        connection.execute(f"INSERT INTO {MADE_OF} VALUES (?, ?)", [number, marks[number]])
        connection.commit()


def _insert(connection: duckdb.DuckDBPyConnection, table: str, number: int, rows: pa.Table) -> None:
    if not rows.num_rows:
        return
    connection.register("found", rows)
    connection.execute(f"INSERT INTO {table} BY NAME SELECT ? AS run, * FROM found", [number])
    connection.unregister("found")


def _forget(connection: duckdb.DuckDBPyConnection, number: int) -> None:
    for table in (*TABLES, MADE_OF):
        connection.execute(f"DELETE FROM {table} WHERE run = ?", [number])
