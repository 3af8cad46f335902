"""Tables on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def print_table(table: Table, widest: int = 10_000) -> None:
    """Print a table on standard output, coloured only on a terminal.

    A table that is wider than the terminal keeps its width: a folded line reads better than
    numbers that are cut off. Beyond `widest` characters cells are folded.
    """
    from rich.console import Console
    from rich.measure import Measurement

    console = Console(highlight=False)
    unlimited = console.options.update_width(widest)
    console.width = max(console.width, Measurement.get(console, unlimited, table).maximum)
    console.print(table)
