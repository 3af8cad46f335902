"""The plug-in of pytest as a project of others uses it."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from comparisons import write_run

ROOT = Path(__file__).parents[2]
TESTS = """
import pytest

@pytest.mark.parametrize("require", ["p99 < 1 s", ["p99 < 1 s", "loss == 0"]])
def test_holds(tail_latency, require):
    assert [run.number for run in tail_latency({folder!r}, require).runs] == [1]

def test_violated(tail_latency):
    tail_latency({folder!r}, require=["loss == 0", "max < 1 us"])

def test_not_shown(tail_latency):
    tail_latency({folder!r}, require="p99.999 < 1 s")

def test_not_shown_and_allowed(tail_latency):
    tail_latency({folder!r}, require="p99.999 < 1 s", allow_not_shown=True)

def test_mistake(tail_latency):
    tail_latency("missing.yaml", require="p99 < 1 s")
"""


def test_a_test_holds_while_a_tail_does(tmp_path: Path) -> None:
    write_run(tmp_path / "load", 1, {}, packets=2_000)
    (tmp_path / "test_tail.py").write_text(TESTS.format(folder=str(tmp_path / "load")))
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tailtap.pytest_plugin", "-p", "no:cacheprovider",
         "--rootdir", tmp_path, "-rA", "test_tail.py"],
        cwd=tmp_path, env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "3 failed, 3 passed" in found.stdout, found.stdout
    assert "max < 1 us: violated: 001-run-r1:" in found.stdout
    assert "p99.999 < 1 s: not shown" in found.stdout
    assert "Failed: tailtap: missing.yaml: " in found.stdout
    assert "Traceback" not in found.stdout


def test_pytest_finds_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"tailtap": "tailtap.pytest_plugin"}


@pytest.mark.parametrize("module", ["numpy", "tailtap.library", "tailtap._core"])
def test_it_costs_other_tests_nothing(module: str) -> None:
    code = f"import sys, tailtap.pytest_plugin; print({module!r} in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"
