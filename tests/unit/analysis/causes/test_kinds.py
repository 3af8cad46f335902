"""The kinds of records: one list, which C, Rust, Python and the page of files have in common."""

from __future__ import annotations

import re
from pathlib import Path

from tailtap._core import TRACE_KINDS

ROOT = Path(__file__).parents[4]


def test_the_page_of_files_tells_every_kind() -> None:
    [page] = (ROOT / "docs").rglob("files.md")
    _, _, table = page.read_text(encoding="utf-8").partition("| kind | what | `id` | `aux` |\n")
    rows = re.findall(r"^\| ([0-9]+) \|", table.partition("\n\n")[0], re.MULTILINE)
    assert [*map(int, rows)] == sorted(TRACE_KINDS.values())


def test_no_number_has_two_names() -> None:
    text = (ROOT / "bpf/trace_kinds.h").read_text(encoding="utf-8")
    rows = re.findall(r'^KIND\(\w+, ([0-9]+), "([a-z-]+)"\)', text, re.MULTILINE)
    listed = {name: int(number) for number, name in rows}
    assert listed == TRACE_KINDS
    assert len(set(listed.values())) == len(listed)
