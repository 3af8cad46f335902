"""The catalogue of warnings: the codes that the sources use are the codes that it explains."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailtap.records.record import Notice
from tailtap.records.warnings import CATALOGUE, INVALIDATING, by_kind, is_valid, page

ROOT = Path(__file__).parents[3]
CALLS = ("Notice", "_warning", "with_flag")
FUNCTIONS = (*CALLS, "warning")
"""Functions whose first argument is a code; as a method, the last one is that of a log."""


def codes_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        values: list[ast.expr | None] = []
        if isinstance(node, ast.Call):
            called = getattr(node.func, "id", "") in FUNCTIONS
            if (called or getattr(node.func, "attr", "") in CALLS) and node.args:
                first = node.args[0]
                values = [first.body, first.orelse] if isinstance(first, ast.IfExp) else [first]
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            values = [v for k, v in pairs if isinstance(k, ast.Constant) and k.value == "code"]
        for value in values:
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value.value


def emitted() -> dict[str, Path]:
    found = {}
    for path in (ROOT / "python").rglob("*.py"):
        found.update(dict.fromkeys(codes_of(path), path))
    for path in (ROOT / "crates").glob("*/src/**/*.rs"):
        text = path.read_text("utf-8")
        found.update(dict.fromkeys(re.findall(r'(?:\bwarn\(|\bcode:)\s*"([\w-]+)"', text), path))
    return found


def test_every_code_is_explained_and_every_explanation_is_of_a_code() -> None:
    found = emitted()
    assert len(found) > 60
    codes = [entry.code for entries in CATALOGUE.values() for entry in entries]
    assert len(codes) == len(set(codes))
    unknown = {code: str(path) for code, path in found.items() if code not in codes}
    assert not unknown, "add these to records/warnings/"
    assert not set(codes) - set(found), "nothing emits these any more"


def test_only_the_load_invalidates() -> None:
    assert sorted(INVALIDATING) == ["generator-rate", "generator-slip"]
    found = [Notice(code=code, message="") for code in ("steal", "overload", "generator-slip")]
    assert is_valid(found[:2])
    assert not is_valid(found)


def test_the_page_is_that_of_the_catalogue() -> None:
    assert (ROOT / "docs/reference/warnings.md").read_text("utf-8") == page(), "run 'make docs'"
    entries = [entry for entries in CATALOGUE.values() for entry in entries]
    assert page().count("\n- `") == len(entries)


@pytest.mark.parametrize(
    ("first", "second", "one"),
    [
        ("300 us late", "7 ms late", "300 us to 7 ms late"),
        ("p99 is from 20 to 21 ns", "p99 is from 30 to 31 ns", ""),
        ("1.json: 3 were lost", "2.json: 3 were lost", ""),
        ("3 % were lost", "3 % were lost", "3 % were lost"),
        ("base-1 lost 1,000", "base-1 lost 20", "base-1 lost 20 to 1,000"),
    ],
)  # fmt: skip
def test_warnings_of_a_kind_are_one_with_the_range_of_their_figure(
    first: str, second: str, one: str
) -> None:
    kinds = by_kind([(Notice("slip", first), "a"), (Notice("slip", second), "b")])
    shown = [(kind.message, kind.runs) for kind in kinds]
    assert shown == ([(one, ["a", "b"])] if one else [(first, ["a"]), (second, ["b"])])
