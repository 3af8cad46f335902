"""`results.duckdb`: what the run folders hold, whatever became of the file."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from program import TAILTAP
from published_trees import write_rates
from runs import all_rows, rows, write_run
from traced import HOG, traffic
from traced import write_run as write_traced

from tailtap.analysis import evaluation
from tailtap.base.errors import MachineError
from tailtap.results.database import EARLIER, refresh
from tailtap.results.importers.importer import import_tree
from tailtap.results.tables import CAUSES


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An experiment of a run that is done and one that failed."""
    folder = tmp_path_factory.mktemp("made")
    write_run(folder / "runs", 1, packets=100)
    write_run(folder / "runs", 2, status="failed")
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "it's an experiment"))


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_runs_are_stored_once_however_often_that_is_asked(folder: Path) -> None:
    refresh(folder)
    stored = all_rows(folder)
    assert rows(folder, "SELECT run, status FROM runs ORDER BY run") == [(1, "done"), (2, "failed")]
    codes = rows(folder, "SELECT run, code FROM warnings ORDER BY ALL")
    assert codes == [(1, "few-packets"), (1, "steal"), (2, "steal")]
    refresh(folder)
    assert all_rows(folder) == stored and files(folder) == ["results.duckdb", "runs"]


def test_what_changed_is_stored_anew_and_what_is_gone_is_forgotten(folder: Path) -> None:
    refresh(folder)
    with duckdb.connect(str(folder / "results.duckdb")) as connection:
        connection.execute("CREATE TABLE mine AS SELECT 42 AS answer")
    record = folder / "runs/002-bare-metal/run.json"
    record.write_text(record.read_text().replace("lxc-start is not installed", "the disk is full"))
    write_run(folder / "runs", 3, packets=100)
    shutil.rmtree(folder / "runs/001-bare-metal")
    refresh(folder)
    [(_, error), (*other,)] = rows(folder, "SELECT run, error FROM runs ORDER BY run")
    assert error.startswith("the disk is full") and other == [3, None]
    assert rows(folder, "SELECT DISTINCT run FROM percentiles") == [(3,)]
    assert rows(folder, "FROM mine") == [(42,)]


def short(database: Path) -> None:
    database.write_bytes(database.read_bytes()[: database.stat().st_size // 2])


def flipped(database: Path) -> None:
    content = bytearray(database.read_bytes())
    content[12] ^= 1  # within the first block, which has a checksum
    database.write_bytes(content)


def of_another_version(database: Path) -> None:
    with duckdb.connect(str(database)) as connection:
        connection.execute("UPDATE made_of SET mark = 'other'")
        connection.execute("ALTER TABLE evaluations DROP COLUMN trimmed_egress")


def hostile(database: Path) -> None:
    with duckdb.connect(str(database)) as connection:
        connection.execute("DROP TABLE gaps")
        connection.execute("CREATE VIEW gaps AS SELECT 1 AS run")


@pytest.mark.parametrize(
    "damage",
    [
        Path.unlink,
        short,
        flipped,
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"text\n" * 1000),
        of_another_version,
        hostile,
    ],
)
def test_a_database_is_made_anew_whatever_became_of_it(
    folder: Path, damage: Callable[[Path], object]
) -> None:
    refresh(folder)
    damage(folder / "results.duckdb")
    refresh(folder)
    assert rows(folder, "SELECT matched, trimmed_egress FROM evaluations") == [(100, 0)]
    assert rows(folder, "SELECT count(*) FROM gaps")[0][0] > 0
    assert files(folder) == ["results.duckdb", "runs"]


@pytest.mark.parametrize("how", ["read_only=True", "read_only=False"])
def test_a_database_that_another_program_has_open_is_made_anew(folder: Path, how: str) -> None:
    refresh(folder)
    write_run(folder / "runs", 3, packets=100)
    script = (
        f"import duckdb, sys; c = duckdb.connect(sys.argv[1], {how}); print('open', flush=True);"
        "input(); print(c.execute('SELECT count(*) FROM runs').fetchone()[0])"
    )
    command = [sys.executable, "-c", script, str(folder / "results.duckdb")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout and other.stdout.readline() == "open\n"
        refresh(folder)
        assert other.communicate("\n", timeout=30)[0] == "2\n"  # it still has what it opened
    assert rows(folder, "SELECT count(*) FROM runs") == [(3,)]


def test_what_of_a_run_cannot_be_read_is_a_warning_and_costs_no_other_run(folder: Path) -> None:
    write_run(folder / "runs", 3, packets=100)
    (folder / "runs/003-bare-metal/evaluation/worst.parquet").write_bytes(b"damaged")
    (folder / "runs/004-bare-metal").mkdir()
    (folder / "runs/004-bare-metal/run.json").write_text("{}")
    refresh(folder)
    assert rows(folder, "SELECT run FROM runs ORDER BY run") == [(1,), (2,), (3,)]
    [(run, message)] = rows(folder, "SELECT run, message FROM warnings WHERE code = 'file-damaged'")
    assert run == 3 and "not a whole evaluation" in message


def test_what_an_earlier_version_imported_is_kept_and_told(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Then the database alone had it."""
    with duckdb.connect(str(folder / "results.duckdb")) as connection:
        connection.execute("CREATE TABLE runs (run INTEGER, slug VARCHAR, status VARCHAR)")
        connection.execute("INSERT INTO runs VALUES (1000001, 'wire-rate10000', 'imported')")
    refresh(folder)
    assert rows(folder, "SELECT run FROM runs ORDER BY run") == [(1,), (2,)]
    assert rows(folder / EARLIER, "SELECT slug FROM runs") == [("wire-rate10000",)]
    assert f"kept as {EARLIER}; import it again" in caplog.text
    refresh(folder)
    assert files(folder) == sorted([EARLIER, "results.duckdb", "runs"])


def test_imported_runs_are_stored_beside_ones_own(folder: Path, tmp_path: Path) -> None:
    import_tree(write_rates(tmp_path, [10_000]), folder)
    assert rows(folder, "SELECT status, count(*) FROM runs GROUP BY 1 ORDER BY 1") == [
        ("done", 1), ("failed", 1), ("imported", 1)
    ]  # fmt: skip
    assert rows(folder, "SELECT count(*), count(low) FROM percentiles WHERE run > 1000") == [
        (275, 0)
    ]


def test_no_database_takes_the_place_of_one_before_it_is_whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tailtap.results.database._put", full)
    with pytest.raises(MachineError, match="the run folders are kept") as error:
        refresh(folder)
    assert "\n" not in str(error.value)
    assert files(folder) == ["runs"]


@pytest.fixture
def traced(tmp_path: Path) -> Path:
    """An experiment of one run in which a task takes the core, stored and not yet explained."""
    folder = tmp_path / "experiment"
    write_traced(folder / "runs/001-traced", traffic(1, 0.5, (HOG, 4, (500_000, 600_000))))
    refresh(folder)
    return folder


def counted(folder: Path) -> list[int]:
    return [rows(folder, f"SELECT count(*) FROM {name}")[0][0] for name in CAUSES]


def test_what_explain_finds_is_stored_until_the_run_is_evaluated_anew(traced: Path) -> None:
    run = traced / "runs" / "001-traced"
    assert counted(traced) == [0, 0, 0]
    for late in ("50 us", "20 us"):
        subprocess.run([TAILTAP, "explain", str(traced), "--late", late, "--quiet"], check=True,
                       capture_output=True)  # fmt: skip
        content = json.loads((run / "causes.json").read_text())
        expected = [len(content["causes"]), content["late"]["stalls"], content["late"]["packets"]]
        assert all(expected)
        assert counted(traced) == expected
    [cause] = rows(traced, "SELECT cause, packets, knobs FROM run_causes")
    assert cause[:2] == ("task", content["causes"][0]["packets"])
    assert json.loads(cause[2]) == content["causes"][0]["knobs"] != []
    kept = (run / "causes-late.parquet").read_bytes()
    (run / "causes-late.parquet").write_bytes(b"damaged")
    refresh(traced)
    assert counted(traced) == [0, 0, 0]
    (run / "causes-late.parquet").write_bytes(kept)
    refresh(traced)
    assert counted(traced) == expected
    sides = run / "ingress.stamps", run / "egress.stamps"
    evaluation.evaluate(*sides, trim_ns=250_000_000).write(run / "evaluation")
    refresh(traced)
    assert counted(traced) == [0, 0, 0]
