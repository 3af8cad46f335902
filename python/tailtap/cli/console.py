"""Tables on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

MIN_WIDTH = 110
"""The width of a table in characters at least: a folded number is worse than a folded line."""


def wide_console() -> Console:
    """A console on standard output for tables, coloured only on a terminal."""
    from rich.console import Console

    console = Console(highlight=False)
    console.width = max(console.width, MIN_WIDTH)
    return console
