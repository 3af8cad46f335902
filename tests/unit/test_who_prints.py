"""Sentences for a person are printed by `cli` alone, and by what is a program of its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import tailtap

SOURCES = Path(tailtap.__file__).parent
PROGRAMS = {
    "measure/roles/here.py": "a station",
    "measure/testbed/check.py": "the cards of a far host",
    "remote/guest.py": "stands here for a command in a guest",
    "remote/switch.py": "the switch of a guest's connections",
    "experiment/json_schema.py": "makes a page",
    "experiment/reference.py": "makes a page",
    "host/tuning/page.py": "makes a page",
    "records/schemas.py": "makes a page, and schemas",
}
"""What is started by `python -m`, and has no other way to tell anything."""
STREAMS = frozenset(("stdout", "stderr"))


def printing(source: str) -> Iterator[int]:
    """The lines that print, or write to a standard stream."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id="print")):
                yield node.lineno
            case ast.Call(
                func=ast.Attribute(
                    attr="write", value=ast.Attribute(value=ast.Name(id="sys"), attr=stream)
                )
            ) if stream in STREAMS:
                yield node.lineno


def test_prints_are_found() -> None:
    assert list(printing("import sys\nprint(1)\nsys.stderr.write('')\nlog.info('')\n")) == [2, 3]


def test_library_code_prints_nothing() -> None:
    found = {
        str(path.relative_to(SOURCES)): lines
        for path in sorted(SOURCES.rglob("*.py"))
        if path.relative_to(SOURCES).parts[0] != "cli"
        and (lines := list(printing(path.read_text())))
    }
    assert set(found) == set(PROGRAMS), found
