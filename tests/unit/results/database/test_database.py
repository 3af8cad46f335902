"""Run folders in the database."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import numpy as np
import pytest
from captures import write_many
from program import TAILTAP
from published_trees import write_rates
from traced import arrivals, hog, random_blocks, simulate, write_run

from tailtap.analysis import evaluation
from tailtap.base.errors import InputError, MachineError
from tailtap.results.database import add_run, begin_anew
from tailtap.results.database.columns import CAUSES
from tailtap.results.importers.importer import import_tree


def run_folder(path: Path, number: int, status: str = "done") -> Path:
    path.mkdir()
    run: dict[str, Any] = {
        "schema": "tailtap.run/1",
        "number": number,
        "slug": f"00{number}-wire",
        "name": "test",
        "repeat": 1,
        "status": status,
        "error": None if status == "done" else "the interface vanished",
        "started": "2026-01-01T10:00:00+00:00",
        "finished": "2026-01-01T10:00:10+00:00",
        "variables": {"dut.platform": "wire"},
        "parameters": {"dut": {"platform": "wire"}},
        "generator": {"sent": 3},
        "taps": None,
        "environment": {"kernel": {"release": "6.1"}},
        "warnings": [{"code": "steal", "message": "the hypervisor took 3 ms"}],
    }
    (path / "run.json").write_text(json.dumps(run))
    if status == "done":
        times = [10**9 + 1000 * i for i in range(100)]
        write_many(path / "in.pcap", times, range(100))
        write_many(path / "out.pcap", [t + 500 + i for i, t in enumerate(times)], range(100))
        found = evaluation.evaluate(path / "in.pcap", path / "out.pcap")
        found.write(path / "evaluation")
    return path


def test_a_run_is_stored_once_however_often_it_is_added(tmp_path: Path) -> None:
    database = tmp_path / "results.duckdb"
    folder = run_folder(tmp_path / "run", 1)
    for _ in range(2):
        add_run(database, folder)
    add_run(database, run_folder(tmp_path / "failed", 2, "failed"))
    with duckdb.connect(str(database), read_only=True) as connection:
        rows = connection.execute("SELECT run, status, error FROM runs ORDER BY run").fetchall()
        assert rows == [(1, "done", None), (2, "failed", "the interface vanished")]
        assert connection.execute("SELECT matched, max_ns FROM evaluations").fetchall() == [
            (100, 599)
        ]
        p50 = connection.execute("SELECT value FROM percentiles WHERE p = 0.5").fetchone()
        assert p50 == (549,)
        total = connection.execute("SELECT sum(count) FROM distribution").fetchone()
        assert total == (100,)
        assert connection.execute("SELECT count(*) FROM worst").fetchone() == (100,)
        codes = connection.execute("SELECT run, code FROM warnings ORDER BY ALL").fetchall()
        assert codes == [(1, "few-packets"), (1, "steal"), (2, "steal")]
        platform = connection.execute("SELECT variables->>'dut.platform' FROM runs").fetchall()
        assert platform == [("wire",), ("wire",)]


@pytest.fixture
def traced(tmp_path: Path) -> Path:
    """An experiment of one run in which a task takes the core, stored and not yet explained."""
    random = np.random.default_rng(1)
    blocks = random_blocks(hog, 4, (500_000, 600_000), 0.5, random)
    simulated = simulate(arrivals(20_000, 0.5, random), blocks, random)
    folder = tmp_path / "experiment"
    write_run(folder / "runs" / "001-traced", simulated)
    add_run(folder / "results.duckdb", folder / "runs" / "001-traced")
    return folder


def counted(database: Path) -> list[int]:
    with duckdb.connect(str(database), read_only=True) as connection:
        counts = [connection.execute(f"SELECT count(*) FROM {name}").fetchone() for name in CAUSES]
    return [count for (count,) in filter(None, counts)]


def test_what_explain_finds_is_stored_until_the_run_is_evaluated_anew(traced: Path) -> None:
    database, run = traced / "results.duckdb", traced / "runs" / "001-traced"
    assert counted(database) == [0, 0, 0]
    for late in ("50 us", "20 us"):
        subprocess.run([TAILTAP, "explain", str(traced), "--late", late, "--quiet"], check=True,
                       capture_output=True)  # fmt: skip
        content = json.loads((run / "causes.json").read_text())
        expected = [len(content["causes"]), content["late"]["stalls"], content["late"]["packets"]]
        assert all(expected)
        assert counted(database) == expected
    with duckdb.connect(str(database), read_only=True) as connection:
        [cause] = connection.execute("SELECT cause, packets, knobs FROM run_causes").fetchall()
        assert cause[:2] == ("task", content["causes"][0]["packets"])
        assert json.loads(cause[2]) == content["causes"][0]["knobs"] != []
    kept = {path: path.read_bytes() for path in run.glob("causes*")}
    (run / "causes-late.parquet").write_bytes(b"damaged")
    add_run(database, run)
    assert counted(database) == [0, 0, 0]
    (run / "causes-late.parquet").write_bytes(kept[run / "causes-late.parquet"])
    add_run(database, run)
    assert counted(database) == expected
    sides = run / "ingress.stamps", run / "egress.stamps"
    evaluation.evaluate(*sides, trim_ns=250_000_000).write(run / "evaluation")
    add_run(database, run)
    assert counted(database) == [0, 0, 0]


def test_beginning_anew_makes_the_tables_that_are_missing(tmp_path: Path) -> None:
    database = tmp_path / "results.duckdb"
    import_tree(write_rates(tmp_path, [10_000]), database)
    with duckdb.connect(str(database)) as connection:
        for name in CAUSES:
            connection.execute(f"DROP VIEW run_{name}")
            connection.execute(f"DROP TABLE {name}")
    assert begin_anew(database) == []
    with duckdb.connect(str(database), read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (1,)
    assert counted(database) == [0, 0, 0]


def test_what_is_no_run_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a run folder"):
        add_run(tmp_path / "results.duckdb", tmp_path)


def test_a_database_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", 1)
    with pytest.raises(MachineError, match="cannot write") as error:
        add_run(tmp_path / "missing" / "results.duckdb", folder)
    assert "\n" not in str(error.value)


def test_beginning_anew_keeps_imported_runs_alone(tmp_path: Path) -> None:
    database = tmp_path / "it's results.duckdb"
    add_run(database, run_folder(tmp_path / "run", 1))
    import_tree(write_rates(tmp_path, [10_000]), database)
    rows = "SELECT (SELECT count(*) FROM runs), count(*), sum(value) FROM percentiles"
    with duckdb.connect(str(database), read_only=True) as connection:
        imported = connection.execute(f"{rows} WHERE run >= 1000001").fetchone()
    assert imported and imported[:2] == (2, 275)
    for _ in range(2):
        assert begin_anew(database) == []
        with duckdb.connect(str(database), read_only=True) as connection:
            assert connection.execute(rows).fetchone() == (1, *imported[1:])
            assert connection.execute("SELECT count(*) FROM distribution").fetchone() == (0,)
    add_run(database, run_folder(tmp_path / "again", 1))
    assert sorted(path.name for path in tmp_path.glob("*duckdb*")) == [database.name]


def test_beginning_anew_keeps_what_stands_in_the_log_alone(tmp_path: Path) -> None:
    database = tmp_path / "results.duckdb"
    import_tree(write_rates(tmp_path, [10_000]), database)
    # A process that dies leaves its last changes in the log.
    script = (
        "import duckdb, os, sys; c = duckdb.connect(sys.argv[1]);"
        "c.execute('PRAGMA disable_checkpoint_on_shutdown');"
        "c.execute(\"INSERT INTO warnings VALUES (1000001, 'late', 'x')\"); os._exit(1)"
    )
    subprocess.run([sys.executable, "-c", script, str(database)], check=False)
    assert database.with_name("results.duckdb.wal").stat().st_size
    assert begin_anew(database) == []
    with duckdb.connect(str(database), read_only=True) as connection:
        assert connection.execute("SELECT code FROM warnings").fetchall() == [("late",)]
    assert not database.with_name("results.duckdb.wal").exists()


def damaged(database: Path, how: str) -> None:
    """Damage a database that holds something, as disks and their file systems do."""
    content = bytearray(database.read_bytes())
    if how == "short":
        del content[len(content) // 2 :]
    elif how == "flipped":
        content[12] ^= 1  # within the first block, which has a checksum
    else:
        content = bytearray({"empty": b"", "zeros": bytes(len(content)), "text": b"text\n"}[how])
    database.write_bytes(content)


@pytest.mark.parametrize("how", ["short", "flipped", "empty", "zeros", "text"])
def test_a_damaged_database_gets_another_name(tmp_path: Path, how: str) -> None:
    database, log = tmp_path / "results.duckdb", tmp_path / "results.duckdb.wal"
    kept: dict[str, bytes] = {}
    for number in (1, 2):  # one that was put aside before stays
        import_tree(write_rates(tmp_path / f"{number}", [10_000]), database)
        damaged(database, how)
        log.write_bytes(b"log %d" % number)
        kept |= {
            f"results.duckdb.damaged-{number}": database.read_bytes(),
            f"results.duckdb.damaged-{number}.wal": log.read_bytes(),
        }
        assert [path.name for path in begin_anew(database)] == sorted(kept)[-2:]
        assert {path.name: path.read_bytes() for path in tmp_path.glob("*duckdb*")} == kept
        add_run(database, run_folder(tmp_path / f"run {number}", 1))
        database.unlink()


def test_a_log_without_its_database_gets_another_name(tmp_path: Path) -> None:
    log = tmp_path / "results.duckdb.wal"
    log.write_bytes(b"log")
    assert begin_anew(tmp_path / "results.duckdb") == [tmp_path / "results.duckdb.damaged-1.wal"]
    assert begin_anew(tmp_path / "results.duckdb") == []


def checksum(block: bytes) -> int:
    """The checksum of DuckDB's blocks, src/common/checksum.cpp."""
    found = 5381
    for (word,) in struct.iter_unpack("<Q", block):
        found ^= word * 0xBF58476D1CE4E5B9 % 2**64
    return found


def test_a_database_of_a_newer_duckdb_is_left_alone(tmp_path: Path) -> None:
    database = tmp_path / "results.duckdb"
    import_tree(write_rates(tmp_path, [10_000]), database)
    content = bytearray(database.read_bytes())
    struct.pack_into("<Q", content, 12, 900)  # the version behind the magic bytes
    struct.pack_into("<Q", content, 0, checksum(bytes(content[8:4096])))
    database.write_bytes(content)
    for write in (
        lambda: begin_anew(database),
        lambda: add_run(database, run_folder(tmp_path / "run", 1)),
        lambda: import_tree(tmp_path, database),
    ):
        with pytest.raises(MachineError, match="version number 900, but") as error:
            write()
        assert "\n" not in str(error.value)
        assert {path.name: path.read_bytes() for path in tmp_path.glob("*duckdb*")} == {
            database.name: bytes(content)
        }


def test_a_database_is_left_alone_where_memory_is_short(tmp_path: Path) -> None:
    database = tmp_path / "results.duckdb"
    import_tree(write_rates(tmp_path, [10_000]), database)
    before = database.read_bytes()
    connect = duckdb.connect

    def with_little(name: str, **how: Any) -> duckdb.DuckDBPyConnection:
        how["config"] = {**how["config"], "memory_limit": "1kB"}
        return connect(name, **how)

    with (
        mock.patch.object(duckdb, "connect", with_little),
        pytest.raises(MachineError, match="needs more memory"),
    ):
        begin_anew(database)
    assert database.read_bytes() == before


@pytest.mark.parametrize("how", ["flipped", "text"])
def test_a_damaged_database_is_not_written(tmp_path: Path, how: str) -> None:
    database = tmp_path / "results.duckdb"
    tree = write_rates(tmp_path, [10_000])
    import_tree(tree, database)
    damaged(database, how)
    before = database.read_bytes()
    for write in (
        lambda: add_run(database, run_folder(tmp_path / "run", 1)),
        lambda: import_tree(tree, database),
    ):
        with pytest.raises(MachineError, match="it is damaged: rename it"):
            write()
        assert {path.name: path.read_bytes() for path in tmp_path.glob("*duckdb*")} == {
            database.name: before
        }


def test_beginning_anew_keeps_what_others_made_in_the_database(tmp_path: Path) -> None:
    database = tmp_path / "results.duckdb"
    add_run(database, run_folder(tmp_path / "run", 1))
    with duckdb.connect(str(database)) as connection:
        connection.execute("CREATE TABLE mine AS SELECT 42 AS answer")
        connection.execute("CREATE VIEW seen AS SELECT answer FROM mine")
    for _ in range(2):
        assert begin_anew(database) == []
    with duckdb.connect(str(database), read_only=True) as connection:
        assert connection.execute("FROM seen").fetchall() == [(42,)]


def test_beginning_anew_refuses_a_database_of_another_version(tmp_path: Path) -> None:
    database = tmp_path / "results.duckdb"
    import_tree(write_rates(tmp_path, [10_000]), database)
    with duckdb.connect(str(database)) as connection:
        connection.execute("ALTER TABLE evaluations DROP COLUMN trimmed_egress")
    before = database.read_bytes()
    with pytest.raises(
        InputError, match=r"evaluations has no column trimmed_egress: .*: rename it"
    ):
        begin_anew(database)
    assert database.read_bytes() == before


def test_a_database_that_another_program_has_open_is_kept(tmp_path: Path) -> None:
    database = tmp_path / "results.duckdb"
    import_tree(write_rates(tmp_path, [10_000]), database)
    script = (
        "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('open', flush=True); input()"
    )
    command = [sys.executable, "-c", script, str(database)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout and other.stdout.readline() == "open\n"
        with pytest.raises(MachineError, match="another program has it open") as error:
            begin_anew(database)
        other.communicate("\n", timeout=30)
    assert "\n" not in str(error.value)
    assert begin_anew(database) == []
    with duckdb.connect(str(database), read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (1,)
