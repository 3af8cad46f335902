"""Every warning that tailtap stores or prints: what it means, what to do, what it invalidates.

A new one is an entry of its subject. A test collects the codes
that the sources use and compares them with the catalogue, both ways.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence

from tailtap.records.record import Entry, Notice
from tailtap.records.warnings.analysis import CAUSES, COMPARISON, TAIL
from tailtap.records.warnings.captures import CAPTURES, IMPORTED, PUBLISHED
from tailtap.records.warnings.runs import INTERRUPTS, OBSERVED, RUN, SEARCH

CATALOGUE: Mapping[str, Sequence[Entry]] = {
    "The run": RUN,
    "What was observed": OBSERVED,
    "The captures and their evaluation": CAPTURES,
    "The tail model": TAIL,
    "The counters of interrupts": INTERRUPTS,
    "The search for the highest rate": SEARCH,
    "The comparison": COMPARISON,
    "Imported results": IMPORTED,
    "The causes of late packets": CAUSES,
    "What is published": PUBLISHED,
}
"""All entries, by what they are about."""
HEAD = """# Warnings

For whoever meets one.

Made from the program's own list by `make docs`; a test fails when it is stale.

Doubtful numbers carry a warning: a code for programs, and a sentence with the
figures for people. Warnings are stored with the run (`run.json`, `evaluation.json`,
`results.duckdb`) and shown wherever its numbers are shown. A warning that *invalidates* says that
the load was not the one that was asked for: the run has `"valid": false`, shows nothing in a
verdict, and is left out of a comparison. A *note* says what was not done, and puts no number in
doubt: the page has it below the numbers.
"""
INVALIDATING = frozenset(
    entry.code for entries in CATALOGUE.values() for entry in entries if entry.invalidates
)
"""Warnings that make a run invalid: what was sent is not what the experiment asks for."""

NOTES = frozenset(entry.code for entries in CATALOGUE.values() for entry in entries if entry.note)
"""Warnings that put no number in doubt: pages do not begin with them."""


def notices(rows: Iterable[Mapping[str, str]]) -> list[Notice]:
    """Warnings of ``{"code", "message"}``."""
    return [Notice(code=row["code"], message=row["message"]) for row in rows]


def invalidating(warnings: Iterable[Notice]) -> list[Notice]:
    """Those of a run's warnings that make it invalid."""
    return [warning for warning in warnings if warning.code in INVALIDATING]


def is_valid(warnings: Iterable[Notice]) -> bool:
    """Whether the generator sent what was asked of it, by the warnings of a run."""
    return not invalidating(warnings)


def page() -> str:
    """docs/reference/warnings.md."""
    parts = [HEAD]
    for title, entries in CATALOGUE.items():
        parts.append(f"## {title}\n")
        for entry in sorted(entries, key=lambda one: one.code):
            mark = " (invalidates)" if entry.invalidates else " (note)" if entry.note else ""
            text = f"`{entry.code}`{mark}: {entry.meaning} *{entry.action}*"
            parts.append(textwrap.fill(text, 100, initial_indent="- ", subsequent_indent="  "))
        parts.append("")
    return "\n".join(parts).rstrip() + "\n"
