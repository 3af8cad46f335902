"""The one way to open a DuckDB database: it may come from anybody.

What is stored in a database may be SQL: a view in place of a table reads whatever files its author
named. So nothing but the database itself is read, no extension is loaded, and only tables count.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from tailtap.records.errors import InputError
from tailtap.records.foreign import storable

if TYPE_CHECKING:
    import duckdb

CLOSED: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": False,
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
    "allow_community_extensions": False,
    "lock_configuration": True,
}
"""What is set before the first statement, and cannot be changed by any that follows."""
_DAMAGE = (
    "Corrupt database file",
    "not a valid DuckDB database file",
    "Could not read enough bytes from file",
)
"""What DuckDB says of checksums, magic bytes, and a file that ends too early.

It has neither a number nor a class of its own for these, nor for a lock.
"""


def connect(database: Path | None = None, *, read_only: bool = False) -> duckdb.DuckDBPyConnection:
    """Open a database that reads and writes no other file; without one, an empty one in memory.

    Raises `InputError` for what is no file, and DuckDB's errors.
    """
    import duckdb  # takes a tenth of a second to load

    if database is not None and database.exists() and not database.is_file():
        raise InputError("this is no file: give a database").at(database)
    if database is not None and storable(str(database)) != str(database):
        raise InputError(
            "the name of this file or of a folder around it is no UTF-8, and DuckDB "
            "opens no such file: rename it"
        ).at(database)
    return duckdb.connect(
        ":memory:" if database is None else str(database), read_only=read_only, config=CLOSED
    )


def says_damaged(error: Exception) -> bool:
    """Whether DuckDB says that the file itself is damaged.

    Only what says so without doubt: a file of a newer DuckDB, one that is open elsewhere and a
    disk that does not read or write give errors, too, and most of them of the same class.
    """
    import duckdb

    if type(error) is duckdb.Error or isinstance(error, duckdb.IOException):
        return any(words in str(error) for words in _DAMAGE)
    return False


def says_locked(error: Exception) -> bool:
    """Whether DuckDB says that another program has the database open."""
    import duckdb

    return isinstance(error, duckdb.IOException) and "Could not set lock" in str(error)


def require_tables(
    connection: duckdb.DuckDBPyConnection, database: Path, wanted: Collection[str]
) -> None:
    """Raise `InputError` when a view has the name of a wanted table, or when there is a macro.

    A macro can have the name of any function that a query of ours calls.
    """
    views = connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()
    others = sorted({name for (name,) in views if name.lower() in wanted})
    if others:
        raise InputError(
            f"{others[0]!r} in it is a view instead of a table: it is no database of "
            "tailtap: give another one"
        ).at(database)
    macro = connection.execute(
        "SELECT function_name FROM duckdb_functions() WHERE NOT internal ORDER BY ALL LIMIT 1"
    ).fetchone()
    if macro is not None:
        raise InputError(
            f"{macro[0]!r} in it is a macro: it is no database of tailtap: give another one"
        ).at(database)
