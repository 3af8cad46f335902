"""Result trees of others into `results.duckdb`, next to your own runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import msgspec

from tailtap.base.errors import InputError
from tailtap.base.files import make_folder
from tailtap.base.foreign import storable
from tailtap.base.writing import writing
from tailtap.records.printed import ImportedTree
from tailtap.records.record import Notice
from tailtap.results.database.columns import TABLES
from tailtap.results.database.database import insert, opened, put
from tailtap.results.importers.importable import Importable
from tailtap.results.importers.pos import PosTree, find_pos_trees
from tailtap.results.importers.published import PublishedRun, find_published
from tailtap.results.importers.published_rows import Published
from tailtap.results.importers.tools import TOOLS
from tailtap.results.importers.tools.runs import find_tool_runs

#: Imported runs are numbered from here on: the numbers of an experiment's own runs stay free.
FIRST_NUMBER = 1_000_001
NAMED = 20
"""Files that are named of those of which nothing is known."""


@dataclass(frozen=True)
class Imported:
    """The result of an import: the number of runs, how many were new, and all warnings."""

    runs: int
    new: int
    warnings: list[Notice]
    trees: tuple[ImportedTree, ...] = ()
    """The experiments that describe themselves: result trees of pos, and crates."""
    replaced: int = 0
    """How many took the place of a run whose files had other content when it was imported."""


def import_tree(tree: Path, database: Path, unit: int | None = None) -> Imported:
    """Put every run of a tree into the database, made if missing.

    `tree` holds published result files, result trees of pos, crates of the RISE profile or result
    files of `TOOLS`, at any depth. A run is identified by the content of its files or, if that
    changed, by their path: importing a tree again, or after it was moved, replaces its runs. All
    runs are imported or, after an error, none. `unit`, in ns, is that of files that do not say it.
    A damaged file is a warning, stored with the run; the run's other files are used. A copy of
    another run of the tree is left out.

    Raises `InputError` when `tree` holds no run, `MachineError` when the database cannot be
    written.
    """
    if not tree.is_dir():
        raise InputError("no such folder; give the folder of a published result tree").at(tree)
    published = find_published(tree)
    pos = find_pos_trees(tree, published)
    runs: list[Importable] = [*_others(published, pos)]
    runs += [run for one in pos for run in one.runs]
    unknown: list[Path] = []
    if not pos:  # what scripts of a tree of pos left is told by its runs
        files = {path for run in published for path in run.files.values()}
        measured, others = find_tool_runs(tree, files, unit)
        runs += measured
        unknown = [] if published else others
    if not runs:
        raise InputError(_nothing(tree, pos, unknown))
    with writing(database, "give another file by --into"):
        make_folder(database.parent)
    with opened(database, "nothing was imported", anew=True) as connection:
        connection.begin()
        found = _import_all(connection, runs, storable(tree.resolve().name))
        connection.commit()
    summaries = tuple(one.summary for one in pos if one.runs)
    told = (
        [Notice("file-unknown", f"nothing is known of {_named(tree, unknown)}")] if unknown else []
    )
    return replace(found, trees=summaries, warnings=[*found.warnings, *told])


def _others(published: Sequence[PublishedRun], trees: Sequence[PosTree]) -> list[Published]:
    """The published runs that no run of pos has."""
    taken = {source for tree in trees for source in tree.taken}
    return [Published(run) for run in published if run.source not in taken]


def _named(tree: Path, files: Sequence[Path]) -> str:
    names = [str(path.relative_to(tree.resolve())) for path in files]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{tree}: {', '.join(names[:NAMED])}{more}"


def _nothing(tree: Path, trees: Sequence[PosTree], unknown: Sequence[Path]) -> str:
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
        "pos (config/allocation.json, HOST/*_run0.loop) or RISE crate (ro-crate-metadata.json), "
        f"and nothing of {', '.join(TOOLS)}" + (f" ({_named(tree, unknown)})" if unknown else "")
    )


def _import_all(
    connection: duckdb.DuckDBPyConnection, runs: Sequence[Importable], experiment: str
) -> Imported:
    by_digest, by_source = _known(connection, "digest"), _known(connection, "source")
    following = max([FIRST_NUMBER - 1, *by_source.values()]) + 1
    taken: dict[int, str] = {}
    digests: dict[str | None, int] = {}  # never of None
    warnings: list[Notice] = []
    new = replaced = 0
    for run in runs:
        content = run.read()
        twin = digests.get(run.digest)
        if twin is not None:
            copy = Notice("run-twice", f"{run.source}: left out, {taken[twin]} is the same")
            _insert_warning(connection, twin, copy)
            warnings.append(copy)
            continue
        number = by_digest.get(run.digest or "", by_source.get(run.source))
        if number is None or number in taken:
            number, following, new = following, following + 1, new + 1
        elif run.digest not in by_digest:
            replaced += 1
        taken[number] = run.source
        if run.digest is not None:
            digests[run.digest] = number
        for table in TABLES:
            connection.execute(f"DELETE FROM {table} WHERE run = ?", [number])
        put(connection, "runs", {"run": number, **run.row(experiment).columns()})
        if content.evaluation:
            put(connection, "evaluations", {"run": number, **content.evaluation})
        for name, rows in content.tables.items():
            insert(connection, name, number, rows)
        for warning in run.warnings:
            _insert_warning(connection, number, warning)
        warnings += run.warnings
    return Imported(len(taken), new, warnings, replaced=replaced)


def _known(connection: duckdb.DuckDBPyConnection, name: str) -> dict[str, int]:
    """The numbers of the imported runs that the database has, by a text of their parameters."""
    rows = connection.execute(
        "SELECT parameters->>?, run FROM runs WHERE status = 'imported'", [name]
    ).fetchall()
    return {str(text): int(number) for text, number in rows if text}


def _insert_warning(connection: duckdb.DuckDBPyConnection, number: int, warning: Notice) -> None:
    put(connection, "warnings", {"run": number, **msgspec.structs.asdict(warning)})
