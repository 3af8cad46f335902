"""One thing that a machine can or cannot do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, ParamSpec, TypeVar

import msgspec

from tailtap.base.errors import TailtapError

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


P = ParamSpec("P")
T = TypeVar("T")


class Findings(msgspec.Struct):
    """Sentences: `problems` prevent it, `notes` should be known before it is made."""

    problems: list[str] = []
    notes: list[str] = []

    def add(self, others: Findings) -> None:
        """Have these as well."""
        self.problems += others.problems
        self.notes += others.notes

    def ask(self, question: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """What `question` answers; a `TailtapError` that it raises is a problem, and None.

        It is what the real thing asks first, and makes nothing.
        """
        try:
            return question(*args, **kwargs)
        except TailtapError as error:
            self.problems.append(str(error))
            return None
