"""Run folders in the database."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
from captures import write_many

from tailtap import evaluation
from tailtap.errors import InputError, MachineError
from tailtap.store import add_run
from tailtap.store.database import TABLES


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
        "environment": {"kernel": "6.1"},
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


def test_every_table_of_the_schema_is_known() -> None:
    schema = Path(evaluation.__file__).parents[1] / "store/schema.sql"
    connection = duckdb.connect()
    connection.execute(schema.read_text())
    tables = {name for (name,) in connection.execute("SHOW TABLES").fetchall()}
    assert tables == set(TABLES)


def test_what_is_no_run_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a run folder"):
        add_run(tmp_path / "results.duckdb", tmp_path)


def test_a_database_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", 1)
    with pytest.raises(MachineError, match="cannot write") as error:
        add_run(tmp_path / "missing" / "results.duckdb", folder)
    assert "\n" not in str(error.value)
