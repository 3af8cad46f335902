"""The folders of the program depend on each other in one direction, as pyproject.toml says."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PROGRAM = PROJECT / "python/tailtap"
LINTER = Path(sys.executable).with_name("lint-imports")
WRONG = {
    "base/units.py": "from tailtap.cli import console",
    "analysis/runs/run.py": "from tailtap.show import report",
    "show/report/page.py": "from tailtap.host.facts import machine",
    "host/net/nic.py": "from tailtap.analysis import clocks",
    "lab/topology/graph.py": "from tailtap.lab import instruments",
    "measure/roles/dut.py": "from tailtap.measure import runner",
    "analysis/clocks/host.py": "from tailtap.analysis import compare",
    "results/tables.py": "from tailtap.show import report",
}
"""An import for each contract that it breaks."""


def _lint(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LINTER, "--no-cache", "--config", PROJECT / "pyproject.toml"],
        cwd=folder, env={"PYTHONPATH": str(folder)}, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("file", WRONG)
def test_an_arrow_back_up_is_found(file: str, tmp_path: Path) -> None:
    shutil.copytree(PROGRAM, tmp_path / "tailtap", ignore=shutil.ignore_patterns("*.so"))
    with (tmp_path / "tailtap" / file).open("a", encoding="utf-8") as source:
        source.write(f"\n\ndef _wrong() -> None:\n    {WRONG[file]}\n")
    found = _lint(tmp_path)
    assert found.returncode == 1, found.stderr
    assert f"tailtap.{file.removesuffix('.py').replace('/', '.')}" in found.stdout


def test_the_table_of_folders_is_the_tree() -> None:
    text = (PROJECT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `python/tailtap/(\w+)/` \|", text, re.MULTILINE)
    assert sorted(named) == sorted(path.parent.name for path in PROGRAM.glob("*/__init__.py"))
