"""Every way of making a file is in `tailtap.base.files`, but for those that are named here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import tailtap

PACKAGE = Path(tailtap.__file__).parent
ELSEWHERE = {
    "host/changes/journal.py": "a folder of root's own; a line is added to a journal, and a lock",
    "lab/platforms/vm/guest_files.py": "below a private temporary folder",
    "lab/platforms/vm/kernels.py": "a lock in the cache, a folder of root's own",
    "remote/agent.py": "what an agent in a guest loads is little: a draft of its own, O_EXCL",
    "measure/testbed/image.py": "below a private temporary folder",
}
"""Files of the package that write otherwise, and why they may."""
METHODS = {"write_text", "write_bytes", "touch", "symlink_to"}
COPIES = {"copy", "copy2", "copyfile", "copytree", "move"}


def writes(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The calls that make or change a file by its path: their lines, and what they call."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        match node.func:
            case ast.Attribute(ast.Name("os"), "open"):
                if any(flag in ast.unparse(node) for flag in ("O_CREAT", "O_TRUNC")):
                    yield node.lineno, "os.open"
            case ast.Attribute(ast.Name("shutil"), name) if name in COPIES:
                yield node.lineno, name
            case ast.Attribute(ast.Name("formatter"), _):  # click's, of help texts
                continue
            case ast.Attribute(_, name) if name in METHODS:
                yield node.lineno, name
            case ast.Attribute(ast.Name("tarfile" | "gzip" | "os"), _):
                continue
            case ast.Attribute(_, "open") | ast.Name("open"):
                place = int(isinstance(node.func, ast.Name))
                given = [one.value for one in node.keywords if one.arg == "mode"]
                mode = given or node.args[place : place + 1]
                texts = [one.value for one in mode if isinstance(one, ast.Constant)]
                if any(set("wax+") & set(str(one)) and len(str(one)) < 4 for one in texts):
                    yield node.lineno, "open"


def found(path: Path) -> list[tuple[int, str]]:
    return list(writes(ast.parse(path.read_text(encoding="utf-8"))))


def test_files_are_made_in_one_place() -> None:
    others = {
        str(path.relative_to(PACKAGE)): found(path)
        for path in PACKAGE.rglob("*.py")
        if path != PACKAGE / "base/files.py" and found(path)
    }
    assert {name: calls for name, calls in others.items() if name not in ELSEWHERE} == {}
    assert set(ELSEWHERE) - set(others) == set()


def test_each_way_of_making_a_file_is_seen() -> None:
    ways = (
        "open('x', 'w')", "path.open('ab')", "path.open(mode='x')", "path.write_text('')",
        "path.write_bytes(b'')", "os.open(path, os.O_CREAT)", "shutil.copy2(a, b)", "path.touch()",
        "path.open('r+b')",
    )  # fmt: skip
    assert all(list(writes(ast.parse(way))) for way in ways)
    reads = ("open('x')", "path.open('rb')", "formatter.open(kind, content=1)", "os.open(p, 0)")
    assert not [way for way in reads if list(writes(ast.parse(way)))]
