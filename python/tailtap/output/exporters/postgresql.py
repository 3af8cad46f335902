"""Runs into a PostgreSQL database, through COPY; tables and views are in `postgresql.sql`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.resources import files
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tailtap.analysis.runs.run import Run
from tailtap.kinds.check import Check
from tailtap.output.exporters.rows import COLUMNS, rows, tables
from tailtap.records.errors import InputError, MachineError

if TYPE_CHECKING:
    import psycopg

#: Rows that are turned into Python values at a time.
BATCH = 10_000
#: Locked while the tables are made: PostgreSQL's IF NOT EXISTS does not protect against another
#: session that makes the same table at the same time. No other program uses this number.
LOCK = 0x7461_696C_7461_7000


class PostgreSQL:
    """One transaction for each run: it replaces what the database held of that run."""

    summary = "Tables and views of a PostgreSQL database."
    documentation = (
        "A run that the database already has is replaced. Needs `pip install 'psycopg[binary]'`."
    )
    address = True
    holds_packets = True

    def diagnose(self) -> Iterator[Check]:
        """Look for the package that it needs."""
        area, name = "exporters", "postgresql"
        if find_spec("psycopg") is None:
            remedy = "pip install 'psycopg[binary]'"
            yield Check(area, name, "missing", "the package psycopg is missing", remedy)
        else:
            yield Check(area, name, "ok", "psycopg is installed")

    def export(self, runs: Sequence[Run], destination: str, *, packets: bool = False) -> list[str]:
        """Write the runs into the database at the address `destination`."""
        try:
            import psycopg
        except ImportError as error:
            raise MachineError(
                "PostgreSQL needs the package psycopg: pip install 'psycopg[binary]'"
            ) from error
        try:
            session = psycopg.connect(destination, autocommit=True)
        except psycopg.Error as error:
            raise MachineError(
                f"the database of --to cannot be reached: {_reason(error)}"
            ) from error
        try:
            with session as connection:
                with connection.transaction():
                    connection.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
                    script = files(__package__).joinpath("postgresql.sql").read_bytes()
                    _require_tables(connection, tuple(COLUMNS))
                    connection.execute(script)
                for run in runs:
                    with connection.transaction():
                        _replace(connection, run, tables(packets))
        except psycopg.Error as error:
            raise MachineError(
                f"the database of --to cannot be written: {_reason(error)}; runs before this one "
                "are kept"
            ) from error
        return list(tables(packets))


def _require_tables(connection: psycopg.Connection[Any], wanted: Sequence[str]) -> None:
    """Raise `InputError` when something else, such as a view, has the name of a table."""
    found = connection.execute(
        "SELECT relname FROM pg_class WHERE relname = ANY(%s) AND relkind NOT IN ('r', 'p') "
        "AND pg_table_is_visible(oid)",
        [list(wanted)],
    ).fetchall()
    if found:
        raise InputError(
            f"the database of --to has something else than a table called {found[0][0]!r}: "
            "rename it, or give another database"
        )


def _reason(error: psycopg.Error) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _replace(connection: psycopg.Connection[Any], run: Run, wanted: Sequence[str]) -> None:
    """Put one run in place of what the database held of it; its number there stays."""
    record = rows(run, "runs").to_pylist()[0]
    record["number"] = record.pop("run")
    names = list(record)
    changes = ", ".join(f"{name} = excluded.{name}" for name in names)
    found = connection.execute(
        f"INSERT INTO runs ({', '.join(names)}) VALUES ({', '.join(['%s'] * len(names))}) "
        f"ON CONFLICT ON CONSTRAINT runs_identity DO UPDATE SET {changes} RETURNING run",
        list(record.values()),
    ).fetchone()
    assert found is not None
    number = found[0]
    for table, columns in COLUMNS.items():
        if table == "runs":
            continue
        connection.execute(f"DELETE FROM {table} WHERE run = %s", [number])
        if table not in wanted:
            continue
        copy = f"COPY {table} (run, {', '.join(columns)}) FROM STDIN"
        with connection.cursor() as cursor, cursor.copy(copy) as stream:
            for batch in rows(run, table).select(list(columns)).to_batches(BATCH):
                values = [column.to_pylist() for column in batch.columns]
                for row in zip(*values, strict=True):
                    stream.write_row((number, *row))
