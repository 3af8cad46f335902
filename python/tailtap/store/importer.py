"""Result trees of others into `results.duckdb`, next to your own runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from tailtap.errors import InputError, MachineError
from tailtap.evaluation.values import Warning
from tailtap.store.database import TABLES
from tailtap.store.importable import Importable, Tree
from tailtap.store.pos import PosTree, find_pos_trees
from tailtap.store.published import PublishedRun, find_published
from tailtap.store.published_rows import Published

#: Imported runs are numbered from here on: the numbers of an experiment's own runs stay free.
FIRST_NUMBER = 1_000_001


@dataclass(frozen=True)
class Imported:
    """The result of an import: the number of runs, how many were new, and all warnings."""

    runs: int
    new: int
    warnings: list[Warning]
    trees: tuple[Tree, ...] = ()
    """The experiments that describe themselves: result trees of pos, and crates."""


def import_tree(tree: Path, database: Path) -> Imported:
    """Put every run of a tree into the database, made if missing.

    `tree` holds published result files, result trees of pos or crates of the RISE profile, at any
    depth. A run is identified by the content of its files or, if that changed, by their path:
    importing a tree again, or after it was moved, replaces its runs. All runs are imported or,
    after an error, none. A damaged file is a warning, stored with the run; the run's other files
    are used. A copy of another run of the tree is left out.

    Raises `InputError` when `tree` holds no run, `MachineError` when the database cannot be
    written.
    """
    if not tree.is_dir():
        raise InputError(f"{tree}: no such folder; give the folder of a published result tree")
    published = find_published(tree)
    pos = find_pos_trees(tree, published)
    runs: list[Importable] = [*_others(published, pos)]
    runs += [run for one in pos for run in one.runs]
    if not runs:
        raise InputError(_nothing(tree, pos))
    try:
        database.parent.mkdir(parents=True, exist_ok=True)
        with duckdb.connect(str(database)) as connection:
            connection.execute(files(__package__).joinpath("schema.sql").read_text())
            connection.begin()
            found = _import_all(connection, runs, tree.resolve().name)
            connection.commit()
    except (duckdb.Error, OSError) as error:
        reason = str(error).splitlines()[0]
        raise MachineError(
            f"{database}: cannot write: {reason}; give another file by --into"
        ) from error
    summaries = tuple(one.summary for one in pos if one.runs)
    return Imported(found.runs, found.new, found.warnings, summaries)


def _others(published: Sequence[PublishedRun], trees: Sequence[PosTree]) -> list[Published]:
    """The published runs that no run of pos has."""
    taken = {source for tree in trees for source in tree.taken}
    return [Published(run) for run in published if run.source not in taken]


def _nothing(tree: Path, trees: Sequence[PosTree]) -> str:
    """Why there is nothing to import."""
    damaged = [warning.message for one in trees for warning in one.warnings]
    if damaged:
        return f"{damaged[0]}; nothing of it can be imported"
    if trees:
        return (
            f"{trees[0].root}: a result tree of pos without a run: copy the files like "
            "HOST/2020-10-07_23-27-11_423961_unknown_run003.loop, or scripts/HOST/…, too"
        )
    return (
        f"{tree}: no result files in it: none like "
        "latencies-pre-rate10000-repeat0.pcap.zst.trim_ms0.percentiles.csv, and no result tree of "
        "pos (config/allocation.json, HOST/*_run0.loop) or RISE crate (ro-crate-metadata.json)"
    )


def _import_all(
    connection: duckdb.DuckDBPyConnection, runs: Sequence[Importable], experiment: str
) -> Imported:
    by_digest, by_source = _known(connection, "digest"), _known(connection, "source")
    following = max([FIRST_NUMBER - 1, *by_source.values()]) + 1
    taken: dict[int, str] = {}
    digests: dict[str | None, int] = {}  # never of None
    warnings: list[Warning] = []
    new = 0
    for run in runs:
        content = run.read()
        twin = digests.get(run.digest)
        if twin is not None:
            copy = Warning("run-twice", f"{run.source}: left out, {taken[twin]} is the same")
            _insert_warning(connection, twin, copy)
            warnings.append(copy)
            continue
        number = by_digest.get(run.digest or "", by_source.get(run.source))
        if number is None or number in taken:
            number, following, new = following, following + 1, new + 1
        taken[number] = run.source
        if run.digest is not None:
            digests[run.digest] = number
        for table in TABLES:
            connection.execute(f"DELETE FROM {table} WHERE run = ?", [number])
        _insert_row(connection, "runs", {"run": number, **run.row(experiment)})
        if content.evaluation:
            _insert_row(connection, "evaluations", {"run": number, **content.evaluation})
        for name, rows in content.tables.items():
            _insert_table(connection, name, rows, number)
        for warning in run.warnings:
            _insert_warning(connection, number, warning)
        warnings += run.warnings
    return Imported(len(taken), new, warnings)


def _known(connection: duckdb.DuckDBPyConnection, name: str) -> dict[str, int]:
    """The numbers of the imported runs that the database has, by a text of their parameters."""
    rows = connection.execute(
        "SELECT parameters->>?, run FROM runs WHERE status = 'imported'", [name]
    ).fetchall()
    return {str(text): int(number) for text, number in rows if text}


def _insert_warning(connection: duckdb.DuckDBPyConnection, number: int, warning: Warning) -> None:
    connection.execute("INSERT INTO warnings VALUES (?, ?, ?)", [number, *warning])


def _insert_row(connection: duckdb.DuckDBPyConnection, table: str, row: Mapping[str, Any]) -> None:
    marks = ", ".join("?" * len(row))
    columns = ", ".join(row)
    connection.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", list(row.values()))


def _insert_table(
    connection: duckdb.DuckDBPyConnection, name: str, rows: pa.Table, number: int
) -> None:
    whole = rows.add_column(0, "run", pa.repeat(pa.scalar(number, pa.int32()), len(rows)))
    connection.register("imported", whole)
    connection.execute(f"INSERT INTO {name} BY NAME SELECT * FROM imported")
    connection.unregister("imported")
