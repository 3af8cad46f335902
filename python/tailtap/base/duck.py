"""The one way to open a DuckDB database: it may come from anybody.

What is stored in a database may be SQL: a view in place of a table reads whatever files its author
named, and a column may be computed. So nothing but the database itself is read, no extension is
loaded, and of what is in it only tables of plain values count, of a size that its file can have.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tailtap.base.errors import InputError, MachineError
from tailtap.base.foreign import CELL_BYTES, open_file, require_cells, storable
from tailtap.base.writing import REMEDIES, error_number, reason_of, refused

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

    Raises `InputError` for what is no file, for links, and DuckDB's errors.
    """
    import duckdb  # takes a tenth of a second to load

    if database is not None:
        require_file(database)
    if database is not None and storable(str(database)) != str(database):
        raise InputError(
            "the name of this file or of a folder around it is no UTF-8, and DuckDB "
            "opens no such file: rename it"
        ).at(database)
    return duckdb.connect(
        ":memory:" if database is None else str(database), read_only=read_only, config=CLOSED
    )


def require_file(database: Path) -> None:
    """Raise `InputError` for what is no file, and where DuckDB would follow a link."""
    for path in (database, log_of(database), database.with_name(f"{database.name}.tmp")):
        if path.is_symlink():
            raise InputError(
                "this is a link, and no database is opened through links: remove it, or "
                "give the file that it leads to"
            ).at(path)
        if path.exists() and not path.is_file() and path.suffix != ".tmp":
            raise InputError("this is no file: give a database").at(path)


def says_damaged(error: Exception) -> bool:
    """Whether DuckDB says that the file itself is damaged.

    Only what says so without doubt: a file of a newer DuckDB, one that is open elsewhere and a
    disk that does not read or write give errors, too, and most of them of the same class.
    """
    import duckdb

    if type(error) is duckdb.Error or isinstance(error, duckdb.IOException):
        return any(words in str(error) for words in _DAMAGE)
    return False


def refused_by(database: Path, error: Exception, kept: str) -> MachineError:
    """The error for what DuckDB could not do, on one line."""
    import duckdb

    reason = reason_of(error)
    if says_damaged(error):
        remedy = "it is damaged: rename it, and repeat this"
    elif isinstance(error, duckdb.IOException) and "Could not set lock" in str(error):
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


def log_of(database: Path) -> Path:
    """The file of what was changed last, which DuckDB has while a database is open."""
    return database.with_name(f"{database.name}.wal")


def locked_by(database: Path) -> int | None:
    """The lock that another process has on a database: `F_RDLCK`, `F_WRLCK`, None without one.

    For the first one, reading it is enough. Raises `OSError` and `ValueError`.
    """
    with open_file(database) as file:
        asked = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind = struct.unpack("hhqqi", fcntl.fcntl(file, fcntl.F_GETLK, asked))[0]
    return None if kind == fcntl.F_UNLCK else kind


def require_tables(
    connection: duckdb.DuckDBPyConnection, database: Path, wanted: Collection[str]
) -> None:
    """Raise `InputError` for a database in which the wanted tables are more than plain values.

    Functions are named with their schema: a macro could have the name of any of them.
    """
    for what, query in _ODD.items():
        for name, table in connection.execute(f"SELECT {query} ORDER BY ALL").fetchall():
            if not table or table.lower() in wanted:
                raise InputError(
                    f"{name!r} in it is {what}: it is no database of tailtap: give another one"
                ).at(database)
    cells = 0
    for table, rows in connection.execute(_ROWS).fetchall():
        if table.lower() not in wanted:
            continue
        columns = connection.execute(_COLUMNS, [table]).fetchall()
        texts = [name for name, kind in columns if kind in _TEXTS]
        cells += rows * len(columns)
        _require_size(cells, database)
        if texts:
            names = (name.replace('"', '""') for name in texts)
            lengths = " + ".join(f'coalesce(strlen("{name}"), 0)' for name in names)
            # All of it: what follows needs the connection for itself.
            [[found]] = connection.execute(f'SELECT sum({lengths}) FROM "{table}"').fetchall()
            cells += int(found or 0) // CELL_BYTES
            _require_size(cells, database)


def _require_size(cells: int, database: Path) -> None:
    try:
        require_cells(database, cells, MOST_CELLS_PER_BYTE)
    except ValueError as error:
        raise InputError(f"give another one: {error}") from error


MOST_CELLS_PER_BYTE = 4
"""Of a database; those of real results have one or two."""
_TEXTS = ("VARCHAR", "JSON")
_PLAIN = (
    *_TEXTS, "BOOLEAN", "INTEGER", "BIGINT", "UBIGINT", "DOUBLE", "TIMESTAMP",
    "TIMESTAMP WITH TIME ZONE",
)  # fmt: skip
_ODD: Mapping[str, str] = {
    "a macro": "function_name, '' FROM system.main.duckdb_functions() WHERE NOT internal",
    "a view instead of a table": "view_name, view_name FROM system.main.duckdb_views()",
    "a type of its own": "type_name, '' FROM system.main.duckdb_types() WHERE NOT internal",
    "a computed column": "column_name, table_name FROM system.main.duckdb_columns() "
    "WHERE column_default IS NOT NULL",
    "a column of more than plain values": "column_name, table_name "
    f"FROM system.main.duckdb_columns() WHERE data_type NOT IN {_PLAIN}",
    "a table with a check": "table_name, table_name FROM system.main.duckdb_constraints() "
    "WHERE constraint_type NOT IN ('PRIMARY KEY', 'NOT NULL', 'UNIQUE')",
    "an index": "index_name, table_name FROM system.main.duckdb_indexes()",
}
"""What is refused: the query for its names, and for the tables where it matters."""
_ROWS = "SELECT table_name, estimated_size FROM system.main.duckdb_tables() WHERE NOT internal"
_COLUMNS = "SELECT column_name, data_type FROM system.main.duckdb_columns() WHERE table_name = ?"
