"""Every warning that tailtap stores or prints: what it means, what to do, what it invalidates.

Each module has the warnings about one thing; a new one is an entry there. A test collects the codes
that the sources use and compares them with the catalogue, both ways.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tailtap.records.record import Notice
from tailtap.records.warnings import (
    captures,
    causes,
    comparison,
    imported,
    interrupts,
    observed,
    published,
    run,
    search,
    tail,
)
from tailtap.records.warnings.entry import Entry

CATALOGUE: Mapping[str, Sequence[Entry]] = {
    module.TITLE: module.ENTRIES
    for module in (
        run,
        observed,
        captures,
        tail,
        interrupts,
        search,
        comparison,
        imported,
        causes,
        published,
    )
}
"""All entries, by what they are about."""
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
