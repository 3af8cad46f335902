"""A database from elsewhere reads no file of this machine, and its views count for nothing."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest
from planted import SECRET, plant

import tailtap
from tailtap.analysis.runs.imported import has_imported, load_imported
from tailtap.output.database.columns import TABLES
from tailtap.output.database.database import begin_anew, opened
from tailtap.output.importers.importer import import_tree
from tailtap.records.duck import connect
from tailtap.records.errors import InputError


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A database with a view in place of `runs`, which reads a file beside it."""
    return plant(tmp_path)


def test_a_view_in_place_of_a_table_is_named(planted: Path) -> None:
    with pytest.raises(InputError, match=r"results\.duckdb: 'runs' in it is a view") as told:
        load_imported(planted)
    assert SECRET not in str(told.value)
    with pytest.raises(InputError, match="is a view"):
        has_imported(planted)
    with pytest.raises(InputError, match="is a view"), opened(planted, "kept"):
        pass
    with pytest.raises(InputError, match="is a view"):
        begin_anew(planted)


@pytest.mark.parametrize("table", [name for name in TABLES if name != "runs"])
def test_no_other_table_is_a_view_either(tmp_path: Path, table: str) -> None:
    database = tmp_path / "results.duckdb"
    with duckdb.connect(str(database)) as connection:
        connection.execute(f"CREATE VIEW {table.upper()} AS SELECT 1 AS run")
    with pytest.raises(InputError, match="is a view"), opened(database, "kept"):
        pass


@pytest.mark.parametrize(
    "macro", ["max(x) AS 7", "count_star() AS 0", "of() AS TABLE SELECT 1", '"no ""x"() AS 1']
)
def test_a_macro_is_refused(tmp_path: Path, macro: str) -> None:
    """It would stand in for a function of the same name."""
    database = tmp_path / "results.duckdb"
    with opened(database, "kept"):
        pass
    with duckdb.connect(str(database)) as connection:
        connection.execute(f"CREATE MACRO {macro}")
    with pytest.raises(InputError, match=r"results\.duckdb: '.*' in it is a macro"):
        load_imported(database)
    with pytest.raises(InputError, match="is a macro"), opened(database, "kept"):
        pass
    with pytest.raises(InputError, match="is a macro"):
        begin_anew(database)
    with pytest.raises(InputError, match="is a macro"):
        has_imported(database)


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
    assert found == {"records/duck.py"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("UPDATE runs SET parameters = '[]'", "cannot read it"),
        ("UPDATE runs SET variables = '7'", "cannot read it"),
        ("UPDATE runs SET parameters = repeat('[', 5000) || repeat(']', 5000)", "cannot read it"),
        ("""UPDATE runs SET parameters = '{"evaluation": {"bucket": -5}}'""", "bucket"),
        ("UPDATE histogram SET count = -1", "count of row 1 is -1"),
        ("UPDATE histogram SET count = 4611686018427387904", "more than 2"),
        ("UPDATE evaluations SET matched = -1", "matched"),
        ("UPDATE rates SET packets = -1", "packets of row 1 is -1"),
    ],
)
def test_values_that_no_import_stores_are_one_error(
    tmp_path: Path, change: str, reason: str
) -> None:
    from published_trees import write_rates

    database = tmp_path / "results.duckdb"
    import_tree(write_rates(tmp_path, [10_000]), database)
    with duckdb.connect(str(database)) as connection:
        connection.execute(change)
    with pytest.raises(InputError, match=rf"results\.duckdb: .*{reason}"):
        load_imported(database)
