"""One thing that a machine can or cannot do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "poor", "missing", "untested"]
"""``poor`` works but harms measurements; ``untested`` could not be tried."""


@dataclass(frozen=True)
class Check:
    """What was looked at, what was found, and what mends it (empty when nothing has to be)."""

    area: str
    name: str
    state: State
    found: str
    remedy: str = ""
    required: bool = False
    """Whether ``tailtap run`` needs it."""
