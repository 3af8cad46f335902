"""The tail of all runs of an experiment at a glance: a table for people, an object for programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tailtap.experiment.folder import RunFolder, read_json
from tailtap.units import format_time

SCHEMA = "tailtap.experiment/1"
PERCENTILES = (0.5, 0.99, 0.999, 0.9999, 0.99999)
"""The columns of the table."""


def summarize(folder: Path, runs: list[RunFolder]) -> dict[str, Any]:
    """What ``tailtap run --json`` prints: every run with its record and its evaluation."""
    return {
        "schema": SCHEMA,
        "folder": str(folder),
        "database": str(folder / "results.duckdb"),
        "runs": [_summarize_run(run) for run in runs],
    }


def _summarize_run(run: RunFolder) -> dict[str, Any]:
    record = run.read()
    kept = ("number", "slug", "repeat", "status", "error", "variables", "parameters", "warnings")
    done = record["status"] == "done"
    return {
        **{key: record[key] for key in kept},
        "folder": str(run.path),
        "evaluation": read_json(run.evaluation / "evaluation.json") if done else None,
    }


def print_table(folder: Path, runs: list[RunFolder]) -> None:
    """Print the tail of every run; a percentile with too few samples above it is marked ``*``."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False)
    table = Table(title=None, box=None, pad_edge=False, header_style="bold")
    table.add_column("run", no_wrap=True)
    for name in ("packets", *map(_percentile_name, PERCENTILES), "max", "loss", "warnings"):
        table.add_column(name, justify="right", no_wrap=True)
    unsupported = False
    for run in runs:
        row = _summarize_run(run)
        if row["evaluation"] is None:
            table.add_row(row["slug"], row["status"])
            continue
        cells, marked = _cells(row["evaluation"])
        unsupported = unsupported or marked
        doubts = len(row["warnings"]) + len(row["evaluation"]["warnings"])
        table.add_row(row["slug"], *cells, str(doubts) if doubts else "")
    # A folded number is worse than a folded line.
    console.width = max(console.width, MIN_WIDTH)
    console.print(table)
    if unsupported:
        console.print("* fewer than ten samples above it: not to be relied on")
    console.print(f"results: {folder}")


MIN_WIDTH = 110
"""The width of the table in characters; narrower terminals fold its lines."""


def _cells(evaluation: dict[str, Any]) -> tuple[list[str], bool]:
    counts, latency = evaluation["counts"], evaluation["latency_ns"]
    found = {row["p"]: row for row in latency["percentiles"]} if latency else {}
    cells = [str(counts["matched"])]
    marked = False
    for p in PERCENTILES:
        row = found.get(p)
        if row is None or row["value"] is None:
            cells.append("-")
            continue
        supported = bool(row["supported"])
        marked = marked or not supported
        cells.append(format_time(row["value"]) + (" " if supported else "*"))
    worst = latency["max"] if latency else None
    cells.append("-" if worst is None else format_time(worst))
    cells.append(str(counts["lost"]))
    return cells, marked


def _percentile_name(p: float) -> str:
    return f"p{100 * p:.6f}".rstrip("0").rstrip(".")
