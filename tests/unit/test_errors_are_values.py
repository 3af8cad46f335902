"""No code reads the text of an error back: who must tell errors apart asks for class and fields.

Found are names bound by ``except … as NAME`` and what is called error or reason: their text may be
printed and put into other texts, but not be searched, split or compared.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import tailtap

SOURCES = Path(tailtap.__file__).parent
READERS = {
    *("startswith", "endswith", "partition", "rpartition", "removeprefix", "removesuffix"),
    *("split", "rsplit", "find", "index", "count", "replace"),
    *("search", "match", "fullmatch", "sub", "findall"),
}
TEXTS = frozenset(("message", "reason", "args", "msg", "context", "problem"))
"""Attributes by which errors have their text."""
ALLOWED = {
    "bmc/libvirt.py": "virsh's words are cleaned of its own `error:` and told as they are",
    "records/document.py": "PyYAML tells what is wrong in words alone",
    "records/duck.py": "DuckDB has no class for damage and locks",
    "records/writing.py": "libraries that write for us quote the system's words, without a number",
}


def _names(tree: ast.AST) -> set[str]:
    """Names of errors."""
    caught = {node.name for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)}
    return {"error", "exception", *filter(None, caught)}


def _texts(tree: ast.AST, names: set[str]) -> set[str]:
    """Names that are given the text of an error."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                pairs = list(zip(targets, values, strict=True))
            case ast.Assign(targets=[target], value=value):
                pairs = [(target, value)]
            case _:
                continue
        for target, value in pairs:
            said = value.values[0] if isinstance(value, ast.BoolOp) else value
            if isinstance(target, ast.Name) and _is_text(said, names):
                found.add(target.id)
    return found


def _is_text(node: ast.AST, names: set[str]) -> bool:
    """Whether an expression is the text of an error."""
    match node:
        case ast.Call(func=ast.Name(id="str"), args=[ast.Name(id=name)]):
            return name in names
        case ast.Attribute(value=ast.Name(id=name), attr=attribute):
            return name in names and attribute in TEXTS
        case ast.Subscript(value=inner):
            return _is_text(inner, names)
    return False


def readings(source: str) -> Iterator[int]:
    """The lines that read the text of an error."""
    tree = ast.parse(source)
    names = _names(tree)
    texts = _texts(tree, names)
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=left, comparators=others):
                read = [left, *others]
            case ast.Call(func=ast.Attribute(value=value, attr=attribute), args=arguments) if (
                attribute in READERS and arguments  # split() alone makes one line of it
            ):
                read = [value, *arguments]
            case _:
                continue
        if any(
            _is_text(one, names) or (isinstance(one, ast.Name) and one.id in texts) for one in read
        ):
            yield node.lineno


@pytest.mark.parametrize(
    "statement",
    [
        "'no answer' in str(e)",
        "'no answer' not in e.reason",
        "e.args[0] == 'x'",
        "str(e).startswith('x')",
        "str(e).partition(':')[0]",
        "re.sub('x', '', str(e))",
        "e.message.removesuffix('x')",
    ],
)
def test_readings_are_found(statement: str) -> None:
    assert list(readings(f"try:\n    f()\nexcept OSError as e:\n    x = {statement}\n")) == [4]


def test_texts_that_are_printed_are_no_readings() -> None:
    said = "try:\n    f()\nexcept OSError as e:\n    raise MachineError(f'{name}: {e}')\n"
    assert not list(readings(said + "    x = e.errno == 2\n"))


def test_nobody_reads_the_text_of_an_error() -> None:
    found = {
        str(path.relative_to(SOURCES)): lines
        for path in sorted(SOURCES.rglob("*.py"))
        if (lines := list(readings(path.read_text())))
    }
    assert {name: lines for name, lines in found.items() if name not in ALLOWED} == {}
    assert set(ALLOWED) == set(found), "an exception that nothing needs any more"
