"""Sections on pages, by Jinja2, and in Markdown, as for a pull request.

Names come from files that anyone may have written: autoescape is on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from tailtap.analysis.runs.text import typeset
from tailtap.analysis.verdict.junit import printable
from tailtap.base.files import named
from tailtap.base.units import format_count, format_share
from tailtap.base.writing import writing
from tailtap.records.compare import GateAnswer, GateRecord
from tailtap.show.sections import Table
from tailtap.show.sections.answers import gate_table


@cache
def templates(package: str) -> Environment:
    """The templates of a package, which import ``sheets.html.j2``.

    What they write is `typeset`, but for markup: ``| e`` keeps what is copied as it is.
    Compiling one takes longer than most pages do: once is enough.
    """
    found = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("tailtap.show.sections")]),
        autoescape=True,
        finalize=_typeset,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["folds"] = folds
    found.filters["code"] = code
    return found


def _typeset(value: object) -> object:
    return typeset(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def code(text: str) -> Markup:
    """A text in which backquotes mark what is typed."""
    return Markup(re.sub("`(.*?)`", r"<code>\1</code>", str(escape(typeset(text)))))


def folds(text: Markup) -> tuple[Markup, Markup]:
    """The first sentence of a text of a page, and the others."""
    first, *others = re.split(r"(?<=\.)\s+", text.strip(), maxsplit=1)
    return Markup(first), Markup("".join(others))


MARKS: dict[GateAnswer, str] = {
    "worse": "❌ worse",
    "not shown": "❔ not shown",
    "no worse": "✅ no worse",
    "better": "✅ better",
}


def in_markdown(found: Table) -> Iterator[str]:
    """The lines of a table."""
    yield _line(column.heading for column in found.columns)
    yield f"|{'|'.join('---' if column.left else '---:' for column in found.columns)}|"
    for row in found.rows:
        yield _line(
            cell.plain(column.kind) for cell, column in zip(row.cells, found.columns, strict=True)
        )


def _line(texts: Iterable[str]) -> str:
    return f"| {' | '.join(map(escaped, texts))} |"


def escaped(text: str) -> str:
    """Text that steers no Markdown: names come from folders and files."""
    shown = printable(text)
    for letter in "\\`*_|<>[]#":
        shown = shown.replace(letter, f"\\{letter}")
    return shown


def write_gate(found: GateRecord, file: Path) -> None:
    """Write what came of a change. Raises `MachineError` when it cannot be written."""
    with writing(file, "give another file by --markdown"), named(file) as draft:
        draft.write(gate_markdown(found).encode())


def gate_markdown(found: GateRecord) -> str:
    """The answer, a table of the rows, and what is doubtful."""
    sides = f"{escaped(found.new)} against {escaped(found.base)}"
    lines = [
        f"### Tail latency: {MARKS[found.answer]}",
        "",
        f"{sides}; worse means by more than {format_share(found.margin)}.",
        "",
        *in_markdown(gate_table(found)),
    ]
    if found.warnings:
        warnings = format_count(len(found.warnings), "warning")
        lines += ["", f"<details><summary>{warnings}</summary>", ""]
        lines += [f"- `{one.code}` {escaped(one.message)}" for one in found.warnings]
        lines += ["", "</details>"]
    return "\n".join(lines) + "\n"
