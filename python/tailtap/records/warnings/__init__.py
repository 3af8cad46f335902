"""Every warning that tailtap stores or prints: what it means, what to do, what it invalidates.

A new one is an entry of its subject. A test collects the codes
that the sources use and compares them with the catalogue, both ways.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

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


ENTRIES = {entry.code: entry for entries in CATALOGUE.values() for entry in entries}
FEW = 6
"""So many runs are named where a warning is of several; of more, how many they are."""
R = TypeVar("R")


@dataclass
class Kind(Generic[R]):
    """Warnings of one code that differ in one figure at most."""

    code: str
    parts: list[set[str]]
    """Of their messages words and figures in turn, and what each is in some of them."""
    runs: list[R] = field(default_factory=list)
    """Those that have one; a run may have several."""

    def joined_by(self, parts: Sequence[str]) -> list[set[str]] | None:
        """Their parts with those of one more; None where that is of another kind."""
        if len(parts) != len(self.parts):
            return None
        found = [known | {part} for known, part in zip(self.parts, parts, strict=True)]
        differ = [len(one) > 1 for one in found]
        return None if any(differ[::2]) or sum(differ) > 1 else found

    @property
    def message(self) -> str:
        """Their message, with the range of the figure."""
        return "".join(map(_range, self.parts))

    @property
    def action(self) -> str:
        """What to do."""
        return ENTRIES[self.code].action if self.code in ENTRIES else ""


def by_kind(found: Iterable[tuple[Notice, R]]) -> list[Kind[R]]:
    """Warnings and the runs that have them by their kinds, in the order of the first ones."""
    kinds: list[Kind[R]] = []
    for notice, run in found:
        parts = FIGURE.split(notice.message)
        for kind in kinds:
            if kind.code == notice.code and (more := kind.joined_by(parts)) is not None:
                kind.parts = more
                break
        else:
            kinds.append(kind := Kind(notice.code, [{part} for part in parts]))
        if kind.runs[-1:] != [run]:
            kind.runs.append(run)
    return kinds


FIGURE = re.compile(r"(?<![\w.-])(\d[\d,]*(?:\.\d+)?(?: (?:ns|us|ms|s|%))?)(?!\.?\w)")
"""A number of a sentence, with its unit."""
UNITS = {"": 1.0, "%": 1.0, "ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}


def _range(known: Collection[str]) -> str:
    """The least and the most of some figures; words are the same in all messages."""
    if len(known) == 1:
        return next(iter(known))

    def size(figure: str) -> float:
        number, _, unit = figure.partition(" ")
        return float(number.replace(",", "")) * UNITS[unit]

    return f"{min(known, key=size)} to {max(known, key=size)}"


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
            text = re.sub(r"\bdocs/([\w/-]+\.md(?:#[\w-]+)?)", r"[\g<0>](../\1)", text)
            parts.append(textwrap.fill(text, 100, initial_indent="- ", subsequent_indent="  "))
        parts.append("")
    return "\n".join(parts).rstrip() + "\n"
