"""A disk that is full, over quota, read-only or broken, at each write of each command.

Whatever was there before is there afterwards, and the message says what helps against this error.
"""

from __future__ import annotations

import errno
import itertools
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from failing_writes import REMEDIES, STAYING, Server, chosen, server
from published_trees import write_rates
from traced import arrivals, hog, random_blocks, simulate, write_run

from tailtap.analysis.causes import explain_runs
from tailtap.analysis.causes.stored import TABLES
from tailtap.analysis.evaluation import evaluate
from tailtap.analysis.evaluation.tables import COLUMNS
from tailtap.analysis.evaluation.tables import read as read_table
from tailtap.records.causes import CausesRecord
from tailtap.records.evaluation import EvaluationRecord
from tailtap.records.record import read
from tailtap.results.database import refresh
from tailtap.results.importers.importer import import_tree

FEW = 3
"""How many of a command's writes fail in CI."""
COMMANDS = {
    "evaluate": (
        "evaluate",
        "{run}/ingress.stamps",
        "{run}/egress.stamps",
        "--out",
        "{folder}/e",
        "--replace",
    ),
    "evaluate-again": ("evaluate", "{folder}"),
    "evaluate-aside": ("evaluate", "{folder}", "--trim", "10 ms", "--out", "{folder}/aside"),
    "explain": ("explain", "{folder}", "--late", "p99"),
    "model": ("model", "{folder}"),
    "verdict": ("verdict", "{folder}", "--require", "max < 1 s", "--junit", "{folder}/j.xml"),
    "report": ("report", "{folder}", "--no-figures"),
    "import": ("import", "{published}", "--into", "{folder}"),
    "export-parquet": ("export", "{folder}", "--to", "parquet"),
    "export-papers": ("export", "{folder}", "--to", "papers"),
    "export-hgrm": ("export", "{folder}", "--to", "hgrm"),
    "export-pos": ("export", "{folder}", "--to", "pos"),
    "host-export": ("host", "export", "--format", "sysctl", "--out", "{folder}/x.conf"),
}
SETS = {"e": "*", "001-traced": "causes*"}
"""Files of which all are the new ones, or none. Where a disk becomes read-only between two renames,
nobody can put the earlier ones back: nothing reads such a set as one."""
EARLIER = b"# Made by `tailtap host export` <title>tailtap report</title>"
"""What a command takes for its own, in a file that it is to replace."""
SLOW = {
    "report-figures": ("report", "{folder}"),
    "model-figures": ("model", "{folder}", "--figures"),
    "export-csv": ("export", "{folder}", "--to", "csv", "--packets"),
}


@pytest.fixture(scope="module")
def failing() -> Iterator[Server]:
    with server() as started:
        yield started


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An experiment with a traced run and imported runs, and runs to import beside it."""
    top = tmp_path_factory.mktemp("before")
    random = np.random.default_rng(1)
    blocks = random_blocks(hog, 4, (500_000, 600_000), 0.5, random)
    run = write_run(
        top / "folder/runs/001-traced", simulate(arrivals(20_000, 0.5, random), blocks, random)
    )
    refresh(top / "folder")
    (top / "imported").mkdir()
    import_tree(write_rates(top / "imported", [10_000]), top / "folder/results.duckdb")
    (top / "published").mkdir()
    write_rates(top / "published", [20_000])
    earlier = evaluate(run / "ingress.stamps", run / "egress.stamps", trim_ns=10_000_000)
    earlier.write(top / "earlier/e")
    (top / "earlier/runs/001-traced").mkdir(parents=True)
    explain_runs([run], late="p90")
    for path in run.glob("causes*"):
        path.rename(top / "earlier/runs/001-traced" / path.name)
    return top


def files(folder: Path) -> dict[str, bytes]:
    """All files below a folder, but for those of DuckDB."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "duckdb" not in path.name
    }


def rows(folder: Path) -> dict[str, list[Any]]:
    """What the database holds, by table."""
    with duckdb.connect(str(folder / "results.duckdb")) as connection:
        query = "SELECT table_name FROM duckdb_tables() WHERE table_name <> 'made_of'"
        names = connection.execute(query).fetchall()  # that says when files were written
        query = "SELECT COLUMNS(*)::VARCHAR FROM {} ORDER BY ALL"
        return {name: connection.execute(query.format(name)).fetchall() for (name,) in names}


def is_whole(name: str, there: bytes, done: Mapping[str, bytes]) -> bool:
    """Whether a file is as the command leaves it; pages and plots say when they were made."""
    if name.endswith(".html"):
        return there.endswith(b"</html>\n") or there.endswith(b"</html>")
    return there == done.get(name)


def fitting(folder: Path, name: str) -> set[str]:
    """The tables of one of the `SETS` that are read beside the record that is there."""
    if name == "e":
        record, names = folder / "e/evaluation.json", list(COLUMNS)
        made = read(record, EvaluationRecord).made
    else:
        record, names = folder / "runs" / name / "causes.json", list(TABLES)
        made = read(record, CausesRecord).made
    found = set()
    for table in names:
        with suppress(ValueError, OSError):
            read_table(record.parent, table, made)
            found.add(str((record.parent / f"{table}.parquet").relative_to(folder)))
    return found


def sweep(failing: Server, before: Path, top: Path, what: str, most: int) -> None:
    """Have writes of a command fail, one after the other, each in a copy of what was before.

    Each has the next error; commands begin with different ones.
    """
    folder = top / "folder"
    words = {**COMMANDS, **SLOW}[what]
    places = {
        "folder": folder,
        "run": folder / "runs/001-traced",
        "published": before / "published",
    }
    command = [word.format(**places) for word in words]

    def anew(made: Iterable[str] = ()) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(before / "folder", folder)
        for name in made:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            earlier = before / "earlier" / name
            (folder / name).write_bytes(earlier.read_bytes() if earlier.exists() else EARLIER)

    anew()
    bare, old_rows = files(folder), rows(folder)
    done = failing.run(folder, *command)
    assert (done.status, done.error.count("Traceback")) == (0, 0), done
    new, new_rows = files(folder), rows(folder)
    assert done.writes > 2
    kept = what == "import" or words[-1].endswith("aside")
    made = [] if kept else [name for name in new if name not in bare]
    errors = itertools.islice(itertools.cycle(REMEDIES), [*COMMANDS, *SLOW].index(what), None)
    for place in chosen(done.writes, most):
        # Where there is something that it replaces, and where there is not.
        anew(made if place % 2 else ())
        old, number = files(folder), next(errors)
        failed = failing.run(folder, *command, at=place, error=number)
        told = f"write {place} of {done.writes}, {errno.errorcode[number]}: {failed}"
        there, there_rows = files(folder), rows(folder)
        assert "Traceback" not in failed.error, told
        if failed.status == 0:  # it was not needed
            assert there.keys() == new.keys() and there_rows == new_rows, told
        else:
            assert failed.status == 3, told
            said = failed.error.splitlines()[-1]
            assert said.startswith("tailtap: ") and REMEDIES[number] in said, told
            assert os.strerror(number) in said or "FATAL Error" in said, told
        assert there.keys() >= old.keys(), told
        changed = {name for name, content in there.items() if content != old.get(name)}
        for name in changed:
            assert is_whole(name, there[name], new), f"{name}: {told}"
        for folder_of, names in SETS.items():
            of_set = {name for name in made if Path(name).match(f"{folder_of}/{names}")}
            if changed & of_set not in (set(), of_set):
                assert number in STAYING, told
                [record] = [name for name in of_set if name.endswith(".json")]
                alike = {name for name in of_set if (name in changed) == (record in changed)}
                assert fitting(folder, folder_of) == alike - {record}, told
        for table, content in there_rows.items():
            assert content in (old_rows[table], new_rows[table]), f"{table}: {told}"
        assert not [name for name in there if Path(name).name.startswith(".")], told


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_is_lost(failing: Server, before: Path, tmp_path: Path, name: str) -> None:
    sweep(failing, before, tmp_path, name, FEW)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*COMMANDS, *SLOW])
def test_nothing_is_lost_at_any_write(
    failing: Server, before: Path, tmp_path: Path, name: str
) -> None:
    sweep(failing, before, tmp_path, name, 10_000)
