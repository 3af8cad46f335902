"""One entry of the catalogue of warnings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """What a warning's code means, and what to do about it."""

    code: str
    meaning: str
    action: str
    invalidates: bool = False
    note: bool = False
    """Whether it says what was not done, and puts no number in doubt."""
