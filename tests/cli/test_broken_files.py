"""Damaged files, and disks that are full, over quota, read-only or broken: commands say so."""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from failing_writes import REMEDIES, STAYING, Server, chosen, server
from improvements import helped, improvement, store
from program import Finished, in_process
from published_trees import write_rates
from runs import all_rows
from runs import rows as stored_rows
from runs import write_run as write_evaluated
from traced import HOG, STEAL, traffic, write_run

from tailtap.analysis.causes import explain_runs
from tailtap.analysis.causes.stored import TABLES
from tailtap.analysis.evaluation import evaluate
from tailtap.analysis.evaluation.tables import COLUMNS
from tailtap.analysis.evaluation.tables import read as read_table
from tailtap.analysis.runs.reader import finished_runs
from tailtap.analysis.undisturbed import keep_undisturbed
from tailtap.records.causes import CausesRecord
from tailtap.records.evaluation import EvaluationRecord
from tailtap.records.record import read
from tailtap.results.database import refresh
from tailtap.results.importers.importer import import_tree

RUN = "runs/001-stolen"


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An experiment whose run was explained, after a knob had been tried."""
    folder = tmp_path_factory.mktemp("explained") / "e"
    kinds = ((kind, 4, (300_000, 400_000)) for kind in (HOG, STEAL))
    run = write_run(folder / RUN, traffic(5, 0.2, *kinds, rate=10_000))
    store(folder, improvement(helped("groups")))
    explain_runs([folder])
    assert keep_undisturbed(finished_runs(run)[0]) is not None
    return folder


@pytest.fixture
def folder(explained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(explained, tmp_path / "e"))


def damage(path: Path) -> None:
    """Cut a file off, as a full disk or a power cut does."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def page_of(folder: Path) -> str:
    made = in_process("report", folder, "--out", folder.with_name("page"))
    assert made.returncode == 0, made
    return (folder.with_name("page") / "index.html").read_text("utf-8")


def warnings_of(made: Finished) -> dict[str, str]:
    assert made.returncode == 0, made
    return {row["code"]: row["message"] for row in json.loads(made.stdout)["warnings"]}


def told_by_the_database(folder: Path) -> list[str]:
    """What the warnings of a new database say of damaged files."""
    database = folder / "results.duckdb"
    database.unlink(missing_ok=True)
    refresh(folder)
    query = "SELECT message FROM warnings WHERE code = 'file-damaged'"
    return [message for (message,) in stored_rows(database, query)]


CAUSES = "its stored causes cannot be read"
UNDISTURBED = "its undisturbed latencies cannot be read"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("causes.json", CAUSES),
        ("causes-late.parquet", CAUSES),
        ("undisturbed/undisturbed.json", UNDISTURBED),
        ("undisturbed/stretches.parquet", UNDISTURBED),
    ],
)
def test_a_database_says_what_of_a_run_cannot_be_read(folder: Path, name: str, said: str) -> None:
    damage(folder / RUN / name)
    [message] = told_by_the_database(folder)
    assert said in message
    assert "tailtap explain" in message


def test_the_page_says_so_too_and_explaining_mends_it(folder: Path) -> None:
    for name in ("causes.json", "undisturbed/undisturbed.json"):
        damage(folder / RUN / name)
    page = page_of(folder)
    assert CAUSES in page
    assert UNDISTURBED in page
    assert in_process("explain", folder / RUN).returncode == 0
    assert told_by_the_database(folder) == []


def test_what_is_missing_is_no_damage(folder: Path) -> None:
    (folder / RUN / "causes.json").unlink()
    shutil.rmtree(folder / RUN / "undisturbed")
    (folder / "improve.json").unlink()
    assert told_by_the_database(folder) == []
    assert "file-damaged" not in warnings_of(in_process("explain", folder / RUN, "--json"))


def test_explaining_says_that_nobody_knows_what_was_tried(folder: Path) -> None:
    damage(folder / "improve.json")
    told = warnings_of(in_process("explain", folder / RUN, "--json"))
    assert "improve.json: this is no JSON file" in told["file-damaged"]
    assert told["file-damaged"].endswith("what was tried here is not known")


def test_an_evaluation_takes_the_place_of_one_that_cannot_be_read(folder: Path) -> None:
    """And says so; that of one which can be read and is of others it does not take."""
    captures = [folder / RUN / f"{side}.stamps" for side in ("ingress", "egress")]
    out = folder.with_name("evaluated")
    assert in_process("evaluate", *captures, "--out", out).returncode == 0
    damage(out / "evaluation.json")
    made = in_process("evaluate", *captures, "--trim", "10 ms", "--out", out)
    assert made.returncode == 0, made
    assert "evaluation.json: this is no JSON file" in made.stderr
    assert "this evaluation takes its place" in made.stderr
    again = in_process("evaluate", *captures, "--out", out)
    assert (again.returncode, "takes its place" in again.stderr) == (2, False)
    damage(folder / RUN / "evaluation/evaluation.json")
    made = in_process("evaluate", folder)
    assert made.returncode == 0, made
    assert "evaluation.json: this is no JSON file" in made.stderr
    assert "it is evaluated anew" in made.stderr


def test_comparing_says_whose_tail_cannot_be_read(tmp_path: Path) -> None:
    for number, name in enumerate(("a", "b"), 1):
        write_evaluated(tmp_path / name / "runs", number, packets=5_000)
    path = tmp_path / "a/runs/001-bare-metal/evaluation/exceedances.parquet"
    table = pq.read_table(path)
    order = np.arange(table.num_rows)[::-1]
    pq.write_table(table.take(order).replace_schema_metadata(table.schema.metadata), path)
    sources = [f"{name}={tmp_path / name}" for name in ("a", "b")]
    told = warnings_of(in_process("compare", *sources, "--json"))
    assert "exceedances.parquet is not in order" in told["no-tail"]


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
    "report": ("report", "{folder}"),
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
    "report-figures": ("report", "{folder}", "--print"),
    "model-figures": ("model", "{folder}", "--figures"),
    "export-csv": ("export", "{folder}", "--to", "csv", "--packets"),
}


@pytest.fixture(scope="module")
def failing() -> Iterator[Server]:
    with server() as started:
        yield started


@pytest.fixture(scope="module")
def before(measured: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An experiment with a traced run and imported runs, and runs to import beside it."""
    top = Path(shutil.copytree(measured, tmp_path_factory.mktemp("before") / "made"))
    run = top / "folder/runs/001-traced"
    (top / "imported").mkdir()
    import_tree(write_rates(top / "imported", [10_000]), top / "folder/results.duckdb")
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
    bare, old_rows = files(folder), all_rows(folder)
    done = failing.run(folder, *command)
    assert (done.status, done.error.count("Traceback")) == (0, 0), done
    new, new_rows = files(folder), all_rows(folder)
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
        there, there_rows = files(folder), all_rows(folder)
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
