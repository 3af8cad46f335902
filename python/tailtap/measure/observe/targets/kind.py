"""The seam of where an interface may be: a kind finds the network namespace that a name means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tailtap.records.machine import Virtualization


@dataclass(frozen=True)
class Place:
    """A network namespace."""

    path: str
    """The file that stands for it."""
    words: str
    """Whose it is, as people read it."""
    virtualization: Virtualization = "none"
    """What keeps it apart from the machine."""


class PlaceKind(Protocol):
    """One kind of place."""

    @property
    def form(self) -> str:
        """How it is typed, as in ``container:NAME``."""
        ...

    @property
    def words(self) -> str:
        """What it is, in a few words."""
        ...

    def find(self, name: str) -> Place:
        """The place of this name. Raises `InputError` where there is none."""
        ...
