"""The folders of the program depend on each other in one direction, as ARCHITECTURE.md says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PROGRAM = PROJECT / "python/tailtap"
FLOORS = (
    "stations",
    "machine",
    "traffic",
    "topology",
    "platform",
    "forwarder",
    "neighbour",
    "instruments",
    "evaluation",
    "results",
    "tail",
    "cause",
    "interrupts",
    "verdict",
    "compare",
    "experiment",
    "roles",
    "measure",
    "testbed",
    "bmc",
    "search",
    "store",
    "report",
    "doctor",
    "cli",
)
"""Every folder, from the lowest to the highest: a folder imports from those before it only."""
PRIVILEGED = frozenset(
    ("stations", "machine", "topology", "platform", "forwarder", "instruments", "roles")
)
"""What works on the machine itself."""
PURE = (
    "evaluation",
    "results",
    "tail",
    "cause",
    "interrupts",
    "verdict",
    "compare",
    "store",
    "report",
)
"""What works on files of results, on any machine."""

LEAVES = ("store", "report")
"""What only the command line imports."""


def _folders() -> list[str]:
    return sorted(path.parent.name for path in PROGRAM.glob("*/__init__.py"))


def _imports(folder: str) -> set[tuple[str, str]]:
    """Files of `folder` and the folders that they import from, imports in functions included."""
    found: set[tuple[str, str]] = set()
    for path in (PROGRAM / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules: list[str] = []
            if isinstance(node, ast.ImportFrom) and node.module == "tailtap":
                modules = [f"tailtap.{name.name}" for name in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                modules = [node.module]
            elif isinstance(node, ast.Import):
                modules = [name.name for name in node.names]
            for module in modules:
                first, *rest = module.split(".")
                if first == "tailtap" and rest and rest[0] in FLOORS and rest[0] != folder:
                    found.add((str(path.relative_to(PROGRAM)), rest[0]))
    return found


def test_every_folder_has_its_place() -> None:
    assert _folders() == sorted(FLOORS)


@pytest.mark.parametrize("folder", FLOORS)
def test_folders_import_from_lower_ones_only(folder: str) -> None:
    lower = FLOORS[: FLOORS.index(folder)]
    wrong = sorted(f"{file} imports {other}" for file, other in _imports(folder)
                   if other not in lower)  # fmt: skip
    assert not wrong, wrong


def test_only_the_command_line_imports_leaves() -> None:
    others = [folder for folder in FLOORS if folder != "cli"]
    wrong = sorted(f"{file} imports {leaf}" for folder in others
                   for file, leaf in _imports(folder) if leaf in LEAVES)  # fmt: skip
    assert not wrong, wrong


@pytest.mark.parametrize("folder", PURE)
def test_results_are_read_without_anything_privileged(folder: str) -> None:
    wrong = sorted(f"{file} imports {other}" for file, other in _imports(folder)
                   if other in PRIVILEGED)  # fmt: skip
    assert not wrong, wrong


def test_the_table_of_folders_is_the_tree() -> None:
    text = (PROJECT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `python/tailtap/(\w+)/` \|", text, re.MULTILINE)
    assert sorted(named) == _folders()
