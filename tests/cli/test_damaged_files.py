"""A file of results that is there and cannot be read is no missing one: each command says so."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest
from improvements import helped, improvement, store
from program import Finished, in_process
from runs import write_run as write_evaluated
from traced import arrivals, hog, random_blocks, simulate, steal, write_run

from tailtap.analysis.causes import explain_runs
from tailtap.analysis.runs.reader import finished_runs
from tailtap.analysis.undisturbed import keep_undisturbed
from tailtap.results.database import refresh

RUN = "runs/001-stolen"


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An experiment whose run was explained, after a knob had been tried."""
    folder = tmp_path_factory.mktemp("explained") / "e"
    random = np.random.default_rng(5)
    blocks = [
        block
        for kind in (hog, steal)
        for block in random_blocks(kind, 4, (300_000, 400_000), 0.2, random)
    ]
    run = write_run(folder / RUN, simulate(arrivals(10_000, 0.2, random), blocks, random))
    store(folder, improvement(helped("groups")))
    explain_runs([folder])
    assert keep_undisturbed(finished_runs(run)[0]) is not None
    return folder


@pytest.fixture
def folder(explained: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return Path(shutil.copytree(explained, tmp_path / "e"))


def damage(path: Path) -> None:
    """Cut a file off, as a full disk or a power cut does."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def page_of(folder: Path) -> str:
    """The text of the report."""
    made = in_process("report", folder, "--no-figures", "--out", folder.with_name("page"))
    assert made.returncode == 0, made
    return (folder.with_name("page") / "index.html").read_text("utf-8")


def warnings_of(made: Finished) -> dict[str, str]:
    """The warnings of a command with ``--json``, by their codes."""
    assert made.returncode == 0, made
    return {row["code"]: row["message"] for row in json.loads(made.stdout)["warnings"]}


def told_by_the_database(folder: Path) -> list[str]:
    """What the warnings of a new database say of damaged files."""
    database = folder / "results.duckdb"
    database.unlink(missing_ok=True)
    refresh(folder)
    with duckdb.connect(str(database), read_only=True) as connection:
        query = "SELECT message FROM warnings WHERE code = 'file-damaged'"
        return [message for (message,) in connection.execute(query).fetchall()]


CAUSES = "why its packets were late is stored and cannot be read"
UNDISTURBED = "what is left of the run without pauses cannot be read"


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
