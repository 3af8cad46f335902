"""Flows that were measured at the same time, as a table on the terminal."""

from __future__ import annotations

from typing import Any

from tailtap.cli.terminal import say


def print_flows(summary: dict[str, Any]) -> None:
    """Print which flow of each measurement was worst, and how fairly the flows were served."""
    if not summary["flows"]:
        return
    from tailtap.analysis.evaluation.percentiles import label
    from tailtap.cli.console import Column, Table
    from tailtap.records.units import format_us

    table = Table(
        (
            Column("first run", wrap=14),
            Column("flows", right=True),
            Column("most lost", right=True, wrap=8),
            Column("fairness of delivery", right=True),
            Column("slowest", right=True, wrap=12),
            Column("fairness of latency", right=True),
        ),
        title="flows measured together",
    )
    for row in summary["flows"]:
        lost, slowest = row["lossiest"], row["slowest"]
        latency = ("-", "-")
        if slowest is not None:
            value = format_us(slowest["latency_ns"])
            told = f"{slowest['flow']} ({label(row['percentile'])} {value} us)"
            latency = (told, f"{row['latency_fairness']:.3f}")
        table.add(
            row["run"] if row["valid"] else f"{row['run']} (invalid)",
            str(len(row["flows"])),
            f"{lost['flow']} ({lost['lost']:.3%})" if lost["lost"] else "none",
            f"{row['delivery_fairness']:.3f}",
            *latency,
        )
    table.print()
    say("fairness is Jain's index: 1 when all flows get the same")
