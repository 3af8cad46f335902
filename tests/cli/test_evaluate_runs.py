"""`tailtap evaluate` of an experiment's folder, here and on a cluster."""

from __future__ import annotations

import fcntl
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
import runs
from dask_cluster import DaskCluster, dask_cluster
from made_records import rewrite
from program import TAILTAP, answer, in_process, one_line_error, tailtap

from tests.simulation.folders import everything

Pair = tuple[Path, Path]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.write_experiment(tmp_path_factory.mktemp("runs"), (20_000, 3_000, 12_000))


@pytest.fixture
def experiment(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "experiment")
    return tmp_path / "experiment"


@pytest.fixture(scope="module")
def cluster() -> Iterator[DaskCluster]:
    with dask_cluster(workers=2) as cluster:
        yield cluster


def test_a_cluster_gives_the_files_and_rows_of_this_machine(
    experiment: Path, cluster: DaskCluster
) -> None:
    options = ("--trim", "10 ms", "--chunk", "64 KiB")
    assert tailtap("evaluate", experiment, "--trim", "10 ms", "--replace").returncode == 0
    files, stored = runs.evaluations(experiment), runs.all_rows(experiment / "results.duckdb")
    for folder in experiment.glob("runs/*/evaluation"):
        shutil.rmtree(folder)
    (experiment / "results.duckdb").unlink()
    run = tailtap("evaluate", experiment, *options, "--scheduler", cluster.address)
    assert run.returncode == 0, run
    assert runs.evaluations(experiment) == files
    assert runs.all_rows(experiment / "results.duckdb") == stored
    assert sorted(line.partition(":")[0] for line in run.stderr.splitlines()) == [
        "1 of 3",
        "2 of 3",
        "3 of 3",
    ]


@pytest.mark.parametrize("option", [("--trim", "10 ms"), ("--key", "1:2:le"), ("--worst", "9")])
def test_results_with_other_settings_stay_or_are_replaced(
    experiment: Path, option: tuple[str, str]
) -> None:
    record = experiment / "runs/001-bare-metal/run.json"
    parameters = json.loads(record.read_text())["parameters"]
    rewrite(record, parameters=parameters | {"traffic": {"warm_up": 1_000_000_000}})
    before = everything(experiment)
    said = one_line_error(in_process("evaluate", experiment, *option), 2)
    assert "give --out for a folder of its own, or --replace" in said
    assert ("the stamps begin after the warm-up (1 s)" in said) == (option[0] == "--trim")
    assert everything(experiment) == before
    run = in_process("evaluate", experiment, *option, "--replace", "--json", "--quiet")
    [first, *_] = json.loads(run.stdout)["runs"]
    assert (first["evaluation"] is None) == (option[0] == "--key")  # no stamp has such a key
    if first["evaluation"]:
        stored = json.loads((record.parent / "evaluation/evaluation.json").read_text())
        assert stored["options"] == first["evaluation"]["options"]


def test_results_with_other_settings_have_a_folder_of_their_own(
    experiment: Path, tmp_path: Path
) -> None:
    before, out = everything(experiment), tmp_path / "other"
    run = in_process("evaluate", experiment, "--trim", "10 ms", "--out", out, "--json")
    assert run.returncode == 0, run
    assert everything(experiment) == before
    assert in_process("report", out, "--quiet").returncode == 0
    [(trimmed,)] = runs.rows(out, "SELECT min(trimmed_ingress) FROM evaluations")
    assert trimmed > 900
    # It is whole by itself.
    assert not [path for path in out.rglob("*") if path.is_symlink()]
    shutil.rmtree(experiment)
    [first, *_] = answer("evaluate", out)["runs"]
    assert first["evaluation"]["options"]["trim_ns"] == 10_000_000


def test_an_evaluation_of_other_captures_stays(
    pair: Pair, experiment: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert in_process("evaluate", *pair, "--out", out, "--quiet").returncode == 0
    before = everything(out)
    assert in_process("evaluate", *pair, "--out", out, "--quiet").returncode == 0
    assert everything(out) == before
    stamps = [experiment / f"runs/001-bare-metal/{side}.stamps" for side in ("ingress", "egress")]
    for command, other in (((*pair, "--trim", "1 ms"), "options"), (stamps, "inputs")):
        run = in_process("evaluate", *command, "--out", out, "--quiet")
        assert f"there is an evaluation with other {other}" in one_line_error(run, 2)
        assert everything(out) == before
    assert in_process("evaluate", *stamps, "--out", out, "--quiet", "--replace").returncode == 0
    assert everything(out) != before


def test_without_dask_the_extra_is_named(pair: Pair) -> None:
    with mock.patch.dict(sys.modules, {"distributed": None}):
        run = in_process("evaluate", *pair, "--scheduler", "tcp://a:1")
    assert "pip install distributed" in one_line_error(run, 3)


def test_ctrl_c_is_told_and_has_its_exit_status(pair: Pair) -> None:
    """While it waits for a scheduler that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"tcp://127.0.0.1:{mute.getsockname()[1]}"
        command = [str(TAILTAP), "evaluate", *map(str, pair), "--scheduler", address]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as run:
            connection, _ = mute.accept()
            run.send_signal(signal.SIGINT)
            assert run.communicate(timeout=60)[1] == "tailtap: interrupted\n"
            connection.close()
    assert run.returncode == 4


def test_ctrl_c_keeps_what_is_evaluated(experiment: Path) -> None:
    """SIGINT once the first run is told: the others keep what they had."""
    for number in range(5, 60):
        folder = experiment / f"runs/{number:03}{'-bare-metal' * 8}"
        shutil.copytree(experiment / "runs/001-bare-metal", folder)
        record = folder / "run.json"
        record.write_text(record.read_text().replace('"number": 1,', f'"number": {number},'))
    command = [str(TAILTAP), "evaluate", str(experiment), "--bucket", "1 us", "--replace"]
    command += ["--jobs", "1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, bufsize=0) as run:
        assert run.stderr is not None
        # It cannot come to its end: the names of all runs have no room in the pipe.
        room = fcntl.fcntl(run.stderr, fcntl.F_SETPIPE_SZ, 1)
        assert sum(len(path.name) for path in experiment.glob("runs/*")) > room
        assert run.stderr.readline().startswith(b"1 of 58: ")
        run.send_signal(signal.SIGINT)
        *_, last = run.stderr.readlines()
        assert run.wait() == 4
    told = re.search(r"tailtap: interrupted: (\d+) of 58 runs were evaluated", last.decode())
    assert told
    evaluated = int(told[1])
    changed = {
        int(path.parents[1].name[:3])
        for path in experiment.glob("runs/*/evaluation/evaluation.json")
        if json.loads(path.read_text())["options"]["bucket_ns"] == 1_000
    }
    assert evaluated <= len(changed) < 58
    query = "SELECT run FROM histogram GROUP BY run HAVING bool_and(bucket_ns % 1000 = 0)"
    assert len(runs.rows(experiment, query)) >= evaluated >= 1
