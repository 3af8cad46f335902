"""`tailtap export` and `tailtap import` as a user types them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import duckdb
import pytest
from experiment_folders import write_experiment
from program import in_process, one_line_error, tailtap


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_experiment(tmp_path_factory.mktemp("exchange") / "experiment", packets=300)


def test_a_tree_of_pos_goes_out_and_comes_back(experiment: Path, tmp_path: Path) -> None:
    tree, folder = tmp_path / "tree", tmp_path / "folder"
    run = tailtap("export", experiment, "--to", "pos", "--out", tree)
    assert run.returncode == 0 and run.stderr == "exported 10 runs as pos\n", run
    paths = run.stdout.splitlines()
    # Two of the tree; each run has four for each of three hosts, nine results, and two by MoonGen.
    assert len(set(paths)) == 2 + 10 * (3 * 4 + 9 + 2) and all(map(os.path.isfile, paths))
    told = tailtap("import", tree, "--into", folder)
    assert told.returncode == 0 and not told.stderr, told
    assert told.stdout == (
        "container-vs-bare-metal (result tree of pos): 10 runs of 30 .loop files; over pkt_sz, "
        "pkt_rate, dut.platform, traffic.rate, repeat; hosts dut, loadgen, timer\n"
        f"{folder / 'results.duckdb'}: 10 runs, 10 of them new\n"
    )
    again = json.loads(tailtap("import", tree, "--into", folder, "--json").stdout)
    assert (again["runs"], again["new"], again["warnings"]) == (10, 0, [])
    assert again["experiments"][0]["hosts"] == ["dut", "loadgen", "timer"]
    report = tailtap("report", folder, "--no-figures", "--json", "--quiet")
    assert json.loads(report.stdout)["imported"] == 10
    assert "result tree of pos" in one_line_error(tailtap("import", tree / "config"), 2)


def test_import_tells_what_is_missing(experiment: Path, tmp_path: Path) -> None:
    tree, database = tmp_path / "tree", tmp_path / "results.duckdb"
    assert tailtap("export", experiment, "--to", "papers", "--out", tree).returncode == 0
    next(tree.rglob("*.stats.csv")).unlink()
    run = tailtap("import", tree, "--into", database)
    assert run.returncode == 0, run
    assert run.stdout == f"{database}: 10 runs, 10 of them new\n"
    assert run.stderr.count("\n") == 1 and "it has no stats [file-missing]" in run.stderr
    found = json.loads(tailtap("import", tree, "--into", database, "--json", "--quiet").stdout)
    assert (found["schema"], found["runs"], found["new"]) == ("tailtap.import/1", 10, 0)
    assert [warning["code"] for warning in found["warnings"]] == ["file-missing"]
    with duckdb.connect(str(database), read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (10,)


def test_imported_runs_stand_in_the_report(experiment: Path, tmp_path: Path) -> None:
    tree, folder = tmp_path / "tree", tmp_path / "folder"
    assert tailtap("export", experiment, "--to", "papers", "--out", tree).returncode == 0
    told = tailtap("import", tree, "--into", folder, "--json", "--quiet").stdout
    assert json.loads(told)["database"] == str(folder / "results.duckdb")
    again = tailtap("import", tree, "--into", folder / "results.duckdb")
    assert again.stdout == f"{folder / 'results.duckdb'}: 10 runs, 0 of them new\n"
    report = ("report", folder, "--no-figures")
    assert "0 own and 10 imported" in one_line_error(tailtap(*report, "--quiet", "--runs", "x"), 2)
    chosen = ("--runs", "wire, 10 kpkt/s", "--runs", "wire, 50 kpkt/s")
    found = json.loads(tailtap(*report, *chosen, "--json", "--quiet").stdout)
    assert (found["runs"], found["failed"], found["imported"]) == (0, 0, 4)
    assert Path(found["page"]).read_text().count("(imported)") > 10


def test_errors_are_one_line(experiment: Path, tmp_path: Path) -> None:
    cases: list[tuple[tuple[str | Path, ...], int, str]] = [
        (("export", tmp_path, "--to", "csv"), 2, "no runs in it"),
        (("export", experiment, "--to", "pdf"), 2, "unknown format"),
        (("export", experiment, "--to", f"postgresql:///x?host={tmp_path}"), 3, "--to"),
        (("import", tmp_path, "--into", tmp_path / "r"), 2, "no result files"),
    ]
    for arguments, status, message in cases:
        assert message in one_line_error(in_process(*arguments), status)
