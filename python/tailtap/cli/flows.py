"""Flows that were measured at the same time, as a table on the terminal."""

from __future__ import annotations

from typing import Any


def print_flows(summary: dict[str, Any]) -> None:
    """Print which flow of each measurement was worst, and how fairly the flows were served."""
    if not summary["flows"]:
        return
    from rich.table import Table

    from tailtap.cli.console import print_table
    from tailtap.evaluation.percentiles import label
    from tailtap.units import format_us

    table = Table(box=None, pad_edge=False, header_style="bold", title="flows measured together",
                  title_justify="left")  # fmt: skip
    table.add_column("first run", no_wrap=True)
    for name in ("flows", "most lost", "fairness of delivery", "slowest", "fairness of latency"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in summary["flows"]:
        lost, slowest = row["lossiest"], row["slowest"]
        latency = ("-", "-")
        if slowest is not None:
            value = format_us(slowest["latency_ns"])
            told = f"{slowest['flow']} ({label(row['percentile'])} {value} us)"
            latency = (told, f"{row['latency_fairness']:.3f}")
        table.add_row(
            row["run"],
            str(len(row["flows"])),
            f"{lost['flow']} ({lost['lost']:.3%})" if lost["lost"] else "none",
            f"{row['delivery_fairness']:.3f}",
            *latency,
        )
    print_table(table)
    print("fairness is Jain's index: 1 when all flows get the same")
