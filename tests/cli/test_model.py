"""`tailtap model` as a user runs it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from experiment_folders import write_run
from program import one_line_error, tailtap
from tails import write_tail


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two repeats of a configuration, the second overloaded."""
    folder = tmp_path_factory.mktemp("experiment")
    for number, lost in ((1, 0), (2, 10_000)):
        run = write_run(folder, number, {"dut.platform": "wire"}, repeat=number, packets=1_000)
        random = np.random.default_rng(number)
        latency = (3_000 + random.gamma(2, 300, 100_000)).astype(np.int64)
        write_tail(run / "evaluation", latency, lost=lost)
    return folder


def test_an_experiment(experiment: Path) -> None:
    run = tailtap("model", experiment, "--horizon", "24 h", "--figures")
    assert run.returncode == 0, run
    assert run.stdout.count("once in 24 h at 10 kpkt/s: ") == 2
    assert run.stdout.count("once in 24 h at 10 kpkt/s: no number") == 1
    assert "9.09% of the packets were lost" in run.stdout
    assert "wire" in run.stdout[run.stdout.index("over repeats") :]
    assert "model: 001-wire-10000-1\n" in run.stderr
    for folder in (experiment / "runs").iterdir():
        assert json.loads((folder / "tail.json").read_text())["schema"] == "tailtap.tail/1"
        assert (folder / "tail.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_that_nobody_can_model(tmp_path: Path) -> None:
    write_tail(tmp_path, np.array([1_000, 2_000, 3_000, 4_000, 5_000]))
    run = tailtap("model", tmp_path, "--quiet")
    assert (run.returncode, run.stderr) == (0, "")
    assert "no threshold gives a model" in run.stdout and "[no-model]" in run.stdout
    assert run.stdout.count("no number") == 2 and "nan" not in run.stdout.lower()


def test_an_invalid_run_says_so_and_is_in_no_summary(experiment: Path, tmp_path: Path) -> None:
    folder = tmp_path / "invalid"
    shutil.copytree(experiment, folder)
    [path] = folder.glob("runs/002-*/run.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "valid": False}))
    run = tailtap("model", folder, "--json", "--quiet")
    found = json.loads(run.stdout)
    assert [entry["valid"] for entry in found["runs"]] == [True, False]
    assert [row["runs"] for row in found["summary"]] == [1]
    [warning] = [one for one in found["warnings"] if one["code"] == "invalid-run"]
    assert "did not send what was asked of it" in warning["message"]
    assert "002-wire-10000-2 (invalid): " in tailtap("model", folder, "--quiet").stdout


def test_errors_are_one_line(experiment: Path, tmp_path: Path) -> None:
    cases: list[tuple[tuple[str | Path, ...], str]] = [
        ((tmp_path,), "no runs in it"),
        ((experiment, "--fit", "some"), "--fit"),
    ]
    for arguments, message in cases:
        assert message in one_line_error(tailtap("model", "--quiet", *arguments), 2)
