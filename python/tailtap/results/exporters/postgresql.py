"""Runs into a PostgreSQL database, through COPY; `postgresql.sql` has its views."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from tailtap.analysis.runs.run import Run
from tailtap.base.errors import InputError, MachineError, PackageMissing
from tailtap.results.exporters.base import Common
from tailtap.results.exporters.tables import COLUMNS, rows, tables

if TYPE_CHECKING:
    import psycopg

#: Rows that are turned into Python values at a time.
BATCH = 10_000
#: Locked while the tables are made: PostgreSQL's IF NOT EXISTS does not protect against another
#: session that makes the same table at the same time. No other program uses this number.
LOCK = 0x7461_696C_7461_7000
TYPES = {
    "int32": "integer", "int64": "bigint", "double": "double precision", "bool": "boolean",
    "string": "text", "json": "jsonb", "time": "text",
}  # fmt: skip
KEYS = {
    "evaluations": "run", "percentiles": "run, p", "distribution": "run, latency_ns",
    "histogram": "run, bucket_ns", "gaps": "run, side, bucket_ns", "rates": "run, side, start_ns",
    "hops": "run, hop", "hop_percentiles": "run, hop, p",
    "hop_distribution": "run, hop, latency_ns",
}  # fmt: skip
"""What of a table is there once; of others there is an index."""
INDEXES = {
    "worst": "run, ingress_ns", "losses": "run, ingress_ns", "packets": "run", "warnings": "run",
    "hop_worst": "run, hop",
}  # fmt: skip


class PostgreSQL(Common):
    """One transaction for each run: it replaces what the database held of that run."""

    summary = "Tables and views of a PostgreSQL database."
    documentation = (
        "A run that the database already has is replaced. Needs `pip install 'psycopg[binary]'`."
    )
    name = "postgresql"
    package, install = "psycopg", "'psycopg[binary]'"
    address = True
    holds_packets = True

    def export(self, runs: Sequence[Run], destination: str, *, packets: bool = False) -> list[str]:
        """Write the runs into the database at the address `destination`."""
        try:
            import psycopg
        except ImportError as error:
            raise PackageMissing("PostgreSQL needs", self.package, self.install) from error
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
                    views = files(__package__).joinpath("postgresql.sql").read_bytes()
                    _require_tables(connection, tuple(COLUMNS))
                    connection.execute(_tables().encode() + views)
                for run in runs:
                    with connection.transaction():
                        _replace(connection, run, tables(packets))
        except psycopg.Error as error:
            raise MachineError(
                f"the database of --to cannot be written: {_reason(error)}; runs before "
                "this one are kept"
            ) from error
        return list(tables(packets))


def _tables() -> str:
    """The statements that make the tables. `run` is a number of this database; a run is known
    again by experiment, slug and start.
    """
    statements = []
    for table, columns in COLUMNS.items():
        if table == "runs":
            rows = ["run bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "slug text NOT NULL"]
            rows.append("number integer NOT NULL")
        else:
            rows = ["run bigint NOT NULL REFERENCES runs ON DELETE CASCADE"]
        for name, kind in columns.items():
            word = kind.rstrip("?")
            # Who evaluated without a run has no parameters of it.
            missing = kind.endswith("?") or word == "json"
            rows.append(f"{name} {TYPES[word]}{'' if missing else ' NOT NULL'}")
        if table == "runs":
            unique = "UNIQUE NULLS NOT DISTINCT (experiment, slug, started)"
            rows.append(f"CONSTRAINT runs_identity {unique}")
        elif table in KEYS:
            rows.append(f"PRIMARY KEY ({KEYS[table]})")
        statements.append(f"CREATE TABLE IF NOT EXISTS {table} ({', '.join(rows)});\n")
    statements += [
        f"CREATE INDEX IF NOT EXISTS {table}_run ON {table} ({key});\n"
        for table, key in INDEXES.items()
    ]
    return "".join(statements)


def _require_tables(connection: psycopg.Connection[Any], wanted: Sequence[str]) -> None:
    """Raise `InputError` when something else, such as a view, has the name of a table."""
    found = connection.execute(
        "SELECT relname FROM pg_class WHERE relname = ANY(%s) AND relkind NOT IN ('r', 'p') "
        "AND pg_table_is_visible(oid)",
        [list(wanted)],
    ).fetchall()
    if found:
        raise InputError(
            "the database of --to has something else than a table called "
            f"{found[0][0]!r}: rename it, or give another database"
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
