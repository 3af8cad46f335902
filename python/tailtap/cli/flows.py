"""Flows that were measured at the same time, as a table on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tailtap.cli.terminal import say

if TYPE_CHECKING:
    from tailtap.records.experiment import FlowsRow


def print_flows(flows: Sequence[FlowsRow]) -> None:
    """Print which flow of each measurement was worst, and how fairly the flows were served."""
    if not flows:
        return
    from tailtap.analysis.evaluation.percentiles import label
    from tailtap.base.units import format_us
    from tailtap.cli.console import Column, Table

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
    for row in flows:
        lost, slowest, p = row.lossiest, row.slowest, row.percentile
        latency = ("-", "-")
        if slowest is not None and p is not None:
            told = f"{slowest.flow} ({label(p)} {format_us(slowest.latency_ns)} us)"
            latency = (told, f"{row.latency_fairness:.3f}")
        table.add(
            row.run if row.valid else f"{row.run} (invalid)",
            str(len(row.flows)),
            f"{lost.flow} ({lost.lost:.3%})" if lost.lost else "none",
            f"{row.delivery_fairness:.3f}",
            *latency,
        )
    table.print()
    say("fairness is Jain's index: 1 when all flows get the same")
