"""What an import puts into the database: runs of others, whatever files they come from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from tailtap.base.foreign import storable
from tailtap.records.record import Notice


@dataclass(frozen=True)
class Content:
    """The results of a run: its row of `evaluations` and its other tables, without its number.

    Both are empty where no file of the run says anything.
    """

    evaluation: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, pa.Table] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """The row of an imported run in `runs`, without its number."""

    slug: str
    experiment: str
    repeat: int
    variables: Mapping[str, object]
    parameters: Mapping[str, object]
    """`source` and `digest` among them."""
    environment: Mapping[str, object] = field(default_factory=dict)
    error: str | None = None

    def columns(self) -> dict[str, object]:
        """By their names in the database; what is JSON is text."""
        told = vars(self) | {"status": "imported", "environment": self.environment or None}
        return {
            name: json.dumps(storable(value)) if isinstance(value, Mapping) else value
            for name, value in told.items()
        }


class Importable(Protocol):
    """A run that others measured."""

    warnings: list[Notice]
    """What is wrong with its files; `read` adds to it."""

    @property
    def source(self) -> str:
        """Where it is. An import replaces what the database has of the same source."""

    @property
    def digest(self) -> str | None:
        """What it is known by wherever it lies, once it was read; None when nothing can be."""

    def read(self) -> Content:
        """Its results. Damaged files are warnings, not errors."""

    def row(self, experiment: str) -> Row:
        """Its row of `runs`. `experiment` is the name of the tree, for runs that have no better
        one."""
