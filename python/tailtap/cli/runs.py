"""The tail of the runs of an experiment, as a table on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

PERCENTILES = (0.5, 0.99, 0.999, 0.9999, 0.99999)
"""The columns of the table unless asked otherwise."""


def print_runs(summary: dict[str, Any], ps: Sequence[float] = PERCENTILES) -> None:
    """Print the tail of every run; a percentile with too few samples above it is marked ``*``."""
    from rich.table import Table
    from rich.text import Text

    from tailtap.cli.console import print_table
    from tailtap.evaluation.percentiles import label

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("run", no_wrap=True)
    for name in ("packets", *map(label, ps), "max", "loss", "warnings"):
        table.add_column(name, justify="right", no_wrap=True)
    unsupported = False
    for row in summary["runs"]:
        if row["evaluation"] is None:
            table.add_row(row["slug"], Text(row["status"], style="red"))
            continue
        cells = _cells(row["evaluation"], ps)
        unsupported = unsupported or any(cell.endswith("*") for cell in cells)
        warnings = len(row["warnings"]) + len(row["evaluation"]["warnings"])
        mark = Text(f"{warnings}, invalid", style="red") if row["valid"] is False else str(warnings)
        table.add_row(row["slug"], *cells, mark if warnings else "")
    print_table(table)
    notes = "latencies in us"
    if unsupported:
        notes += "; *: fewer than ten packets above it, not to be relied on"
    print(notes)
    print(f"results: {summary['folder']}")


def _cells(evaluation: dict[str, Any], ps: Sequence[float]) -> list[str]:
    from tailtap.units import format_us

    counts, latency = evaluation["counts"], evaluation["latency_ns"]
    found = {row["p"]: row for row in latency["percentiles"]}
    cells = [f"{counts['matched']:,}"]
    for p in ps:
        row = found[p]
        cells.append(format_us(row["value"]) + (" " if row["supported"] else "*"))
    return [*cells, format_us(latency["max"]), f"{counts['lost']:,}"]
