"""Files of strangers are opened by `tailtap.base.foreign` alone, but for what is named here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import tailtap

PACKAGE = Path(tailtap.__file__).parent
OPENER = "base/foreign.py"
ELSEWHERE = {
    "bmc/": "opens machines, no files",
    "host/": "the kernel's files, and folders of root's own",
    "lab/": "the kernel's files, and what a lab wrote for itself",
    "remote/": "what one end of a stream is told to send by the other one, as that user",
    "measure/testbed/": "keys, images and programs of the machine itself",
    "measure/observe/": "the kernel's files, and the folder that this process is filling",
    "measure/roles/": "the kernel's files",
    "measure/run.py": "opens stations, no files",
    "base/locks.py": "the kernel's files",
    "base/proc.py": "the kernel's files",
    "base/files.py": "folders, and what was written a moment ago, to be synchronised",
    "base/writing.py": "passwords: a file of its own kind, with a check of its own",
    "analysis/runs/folder.py": "the lock of a folder",
    "analysis/live/written.py": "captures that a tap of this process is writing",
    "analysis/evaluation/sources.py": "pipes that the user named",
    "analysis/evaluation/evaluate.py": "`Sources`",
    "analysis/evaluation/tables.py": "what `foreign.open_file` opened",
    "analysis/evaluation/transactions.py": "`Sources`",
    "analysis/tail/gpd.py": "a file of the package",
    "results/database.py": "a file of the package",
    "results/exporters/postgresql.py": "a file of the package",
    "show/live/server.py": "a file of the package",
    "show/report/page.py": "a file of the package",
    "show/reproduce/fetching.py": "web servers, no files",
    "cli/evaluate.py": "`Sources`",
}
"""Files and folders of the package that open otherwise, and what."""
READERS = {
    "pq": {"read_table", "read_pandas", "ParquetFile", "ParquetDataset", "read_metadata"},
    "np": {"memmap", "fromfile", "load", "loadtxt", "genfromtxt"},
}
"""Of these modules what reads files, given their paths."""
METHODS = {"read_text", "read_bytes", "open"}


def reads(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The calls that open a file by its path to read it: their lines, and what they call."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Name("open" | "memmap" | "fromfile")):
                yield node.lineno, ast.unparse(node.func)
            case ast.Call(ast.Attribute(ast.Name("os"), "open")):
                if not any(flag in ast.unparse(node) for flag in ("O_CREAT", "O_WRONLY")):
                    yield node.lineno, "os.open"
            case ast.Call(ast.Attribute(ast.Name("shutil"), name)) if name.startswith("copy"):
                if name != "copyfileobj":
                    yield node.lineno, name
            case ast.Call(ast.Attribute(ast.Name("pq" | "np" as module), name)):
                if name in READERS[module]:
                    yield node.lineno, f"{module}.{name}"
            case ast.Call(ast.Attribute(ast.Name("tarfile" | "formatter"), _)):
                continue
            case ast.Call(ast.Attribute(_, name)) if name in METHODS:
                modes = [one.value for one in node.args[:1] if isinstance(one, ast.Constant)]
                if name != "open" or not any(set("wax") & set(str(mode)) for mode in modes):
                    yield node.lineno, name


def found() -> dict[str, list[tuple[int, str]]]:
    every = {
        str(path.relative_to(PACKAGE)): list(reads(ast.parse(path.read_text(encoding="utf-8"))))
        for path in PACKAGE.rglob("*.py")
    }
    return {name: calls for name, calls in every.items() if calls and name != OPENER}


def test_files_are_opened_in_one_place() -> None:
    others = found()
    known = {name: [one for one in ELSEWHERE if name.startswith(one)] for name in others}
    assert {name: others[name] for name, by in known.items() if not by} == {}
    assert set(ELSEWHERE) - {one for by in known.values() for one in by} == set()


@pytest.mark.parametrize(
    "way",
    ["open('x')", "path.open('rb')", "path.open(mode='rb')", "path.read_text()",
     "path.read_bytes()", "os.open(path, os.O_RDONLY)", "pq.read_table(path)",
     "pq.ParquetFile(path)", "np.memmap(path)", "np.fromfile(path)",
     "shutil.copy(a, b)", "shutil.copytree(a, b)"],
)  # fmt: skip
def test_each_way_of_opening_a_file_is_seen(way: str) -> None:
    assert list(reads(ast.parse(way)))


@pytest.mark.parametrize(
    "way", ["path.open('wb')", "os.open(p, os.O_CREAT)", "pq.write_table(t, f)", "read_bytes(p)"]
)
def test_what_opens_no_file_to_read_it_is_left_alone(way: str) -> None:
    assert not list(reads(ast.parse(way)))
