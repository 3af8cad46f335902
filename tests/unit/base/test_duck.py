"""A database from elsewhere reads no file of this machine, and its views count for nothing."""

from __future__ import annotations

import re
import stat
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

import tailtap
from tailtap.base.duck import connect, require_tables
from tailtap.base.errors import InputError, MachineError
from tailtap.results.history import changed
from tailtap.results.importers.importer import import_tree
from tailtap.results.tables import TABLES

SECRET = "what only root may read"


def checked(database: Path) -> None:
    """What is done before anything of a database is read."""
    with connect(database, read_only=True) as connection:
        require_tables(connection, database, TABLES)


@pytest.mark.parametrize("table", TABLES)
def test_a_view_in_place_of_a_table_is_named(tmp_path: Path, table: str) -> None:
    """It may read a file beside it."""
    (tmp_path / "shadow").write_text(SECRET)
    database = tmp_path / "results.duckdb"
    view = f"SELECT 1 AS run, content AS slug FROM read_text('{tmp_path / 'shadow'}')"
    with duckdb.connect(str(database)) as connection:
        connection.execute(f"CREATE VIEW {table.upper()} AS {view}")
    with pytest.raises(InputError, match=rf"(?i)duckdb: '{table}' in it is a view") as told:
        checked(database)
    assert SECRET not in str(told.value)


@pytest.mark.parametrize(
    "macro", ["max(x) AS 7", "count_star() AS 0", "of() AS TABLE SELECT 1", '"no ""x"() AS 1']
)
def test_a_macro_is_refused(tmp_path: Path, macro: str) -> None:
    """It would stand in for a function of the same name."""
    database = tmp_path / "results.duckdb"
    with duckdb.connect(str(database)) as connection:
        connection.execute(f"CREATE MACRO {macro}")
    with pytest.raises(InputError, match=r"results\.duckdb: '.*' in it is a macro"):
        checked(database)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_text('{file}')",
        "SELECT * FROM '{file}.csv'",
        "COPY (SELECT 1) TO '{file}.out'",
        "ATTACH '{file}.other' AS other",
        "EXPORT DATABASE '{file}.folder'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET autoload_known_extensions = true",
    ],
)
def test_a_connection_reaches_no_other_file(tmp_path: Path, statement: str) -> None:
    file = tmp_path / "secret"
    file.write_text("secret")
    file.with_name("secret.csv").write_text("a\n1\n")
    with connect(tmp_path / "x.duckdb") as connection, pytest.raises(duckdb.Error):
        connection.execute(statement.format(file=file)).fetchall()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret", "secret.csv", "x.duckdb"]


def test_what_is_no_file_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file"):
        connect(tmp_path)


def test_nothing_else_opens_databases() -> None:
    package = Path(tailtap.__file__).parent
    found = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if re.search(r"duckdb\.(connect|sql|query|execute)\(", path.read_text(encoding="utf-8"))
    }
    assert found == {"base/duck.py"}


def imported(folder: Path) -> Path:
    """A database with one imported run, less what its connection keeps open."""
    from published_trees import write_rates

    import_tree(write_rates(folder, [10_000]), folder)
    return folder / "results.duckdb"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        # It would be computed for each row that is read: hours, or the whole memory.
        ("CREATE OR REPLACE TABLE rates (run INTEGER, packets BIGINT AS (run * 7))",
         "'packets' in it is a computed column"),
        ("ALTER TABLE percentiles ALTER value SET DEFAULT 7", "'value' in it is a computed column"),
        ("ALTER TABLE histogram ALTER count TYPE STRUCT(a BIGINT) USING {'a': count}",
         "'count' in it is a column of more than plain values"),
        ("ALTER TABLE worst ALTER key TYPE VARCHAR[] USING [key]", "more than plain values"),
        ("CREATE TYPE bigint7 AS ENUM ('a')", "is a type of its own"),
        ("CREATE OR REPLACE TABLE gaps (run INTEGER, CHECK (run < 9))",
         "'gaps' in it is a table with a check"),
        ("CREATE INDEX late ON worst ((latency_ns * 2))", "'late' in it is an index"),
        # What guards could have a stand-in that says that all is well.
        ("CREATE MACRO duckdb_functions() AS TABLE SELECT 'x' AS function_name, true AS internal",
         "'duckdb_functions' in it is a macro"),
        # A few bytes in the file, and gigabytes where they are read.
        ("INSERT INTO histogram SELECT 0, 1, 1 FROM range(20000000)", "cells are more than"),
        ("INSERT INTO warnings SELECT 0, 'x', repeat('y', 2000) FROM range(200000)",
         "cells are more than"),
    ],
)  # fmt: skip
def test_only_plain_tables_of_bounded_size_are_read(tmp_path: Path, change: str, told: str) -> None:
    database = imported(tmp_path)
    with duckdb.connect(str(database)) as connection:
        connection.execute(change)
    with pytest.raises(InputError, match=told):
        checked(database)


def held(database: Path, how: str) -> subprocess.Popen[str]:
    """Another program that has locked a file."""
    script = (
        "import fcntl, sys; file = open(sys.argv[1], sys.argv[2]); "
        "fcntl.lockf(file, fcntl.LOCK_SH if sys.argv[2] == 'rb' else fcntl.LOCK_EX); "
        "print('held', flush=True); input()"
    )
    command = [sys.executable, "-c", script, str(database), how]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout and other.stdout.readline() == "held\n"
    return other


def history(folder: Path) -> Path:
    path = folder / "history.duckdb"
    with changed(path):
        pass
    return path


def test_who_may_only_read_a_history_keeps_nobody_from_writing(tmp_path: Path) -> None:
    database = history(tmp_path)
    database.chmod(0o640)
    with held(database, "rb") as other:
        with changed(database) as connection:
            connection.execute("CREATE TABLE mine AS SELECT 7 AS stored")
        other.communicate("\n", timeout=30)
    with connect(database, read_only=True) as connection:
        assert connection.execute("FROM mine").fetchall() == [(7,)]
    assert stat.S_IMODE(database.stat().st_mode) == 0o640
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_who_writes_a_history_keeps_others_out(tmp_path: Path) -> None:
    database = history(tmp_path)
    with held(database, "r+b") as other:
        with pytest.raises(MachineError, match="another program has it open"), changed(database):
            raise AssertionError("it was opened")
        other.communicate("\n", timeout=30)


def test_what_is_changed_is_there_whole_or_as_it_was(tmp_path: Path) -> None:
    database = history(tmp_path)
    before = database.read_bytes()
    with pytest.raises(MachineError), changed(database) as connection:
        connection.execute("CREATE TABLE mine AS SELECT 7 AS stored")
        raise OSError(28, "No space left on device")
    assert database.read_bytes() == before
    assert [path.name for path in tmp_path.glob("*duckdb*")] == ["history.duckdb"]
    with changed(database) as connection:
        connection.execute("CREATE TABLE mine AS SELECT 7 AS stored")
    # The file alone has it: a copy of it is whole.
    copy = tmp_path / "copy.duckdb"
    copy.write_bytes(database.read_bytes())
    with connect(copy, read_only=True) as connection:
        assert connection.execute("FROM mine").fetchall() == [(7,)]
