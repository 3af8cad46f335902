"""Every warning that tailtap stores or prints: what it means, what to do, what it invalidates.

Each module has the warnings about one thing; a new one is an entry there. A test collects the codes
that the sources use and compares them with the catalogue, both ways.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tailtap.results.warnings import (
    captures,
    causes,
    comparison,
    imported,
    interrupts,
    run,
    search,
    tail,
)
from tailtap.results.warnings.entry import Entry

CATALOGUE: Mapping[str, Sequence[Entry]] = {
    module.TITLE: module.ENTRIES
    for module in (run, captures, tail, interrupts, search, comparison, imported, causes)
}
"""All entries, by what they are about."""
INVALIDATING = frozenset(
    entry.code for entries in CATALOGUE.values() for entry in entries if entry.invalidates
)
"""Warnings that make a run invalid: what was sent is not what the experiment asks for."""


def is_valid(warnings: Iterable[Mapping[str, Any]]) -> bool:
    """Whether the generator sent what was asked of it, by a run's ``{"code", "message"}``."""
    return not any(warning["code"] in INVALIDATING for warning in warnings)
