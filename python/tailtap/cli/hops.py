"""The hops of a run of a line, as tables on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tailtap.cli.terminal import say

if TYPE_CHECKING:
    from tailtap.records.evaluation import EvaluationRecord, HopRecord, WorstRecord
    from tailtap.records.experiment import RunRow

PERCENTILES = (0.5, 0.99, 0.999)
"""The columns of the table, as far as they were asked for."""
MOST_RUNS = 3
"""Runs whose hops are printed; of more, the page and the files tell."""
MOST_PACKETS = 5
"""Worst packets that are told of."""
MOST_PARTS = 3
"""Hops that are named of a packet, the slowest first."""


def print_hops(runs: Sequence[RunRow]) -> None:
    """Print the hops of the runs that have some: who lost packets, and who made the worst ones."""
    found = [(row, row.evaluation) for row in runs if row.evaluation and row.evaluation.hops]
    if len(found) > MOST_RUNS:
        say(f"{len(found)} runs have hops: `tailtap report` shows them all")
        return
    for row, evaluation in found:
        invalid = " (invalid)" * (row.valid is False)
        _print_run(f"{row.slug}{invalid}", evaluation, evaluation.hops or [])


def _print_run(slug: str, evaluation: EvaluationRecord, hops: Sequence[HopRecord]) -> None:
    from tailtap.analysis.evaluation.hops import part_name
    from tailtap.analysis.evaluation.percentiles import label
    from tailtap.base.units import format_us
    from tailtap.cli.console import Column, Table, columns

    known = {row.p for row in hops[0].latency_ns.percentiles}
    listed = [p for p in PERCENTILES if p in known]
    table = Table(
        (
            Column("hop", wrap=12),
            Column("packets", right=True, spare=1),
            *columns(("lost", *map(label, listed), "max", "slowest of the worst"), right=True),
        ),
        title=f"hops of {slug}, in us",
    )
    for hop in hops:
        found = {row.p: row for row in hop.latency_ns.percentiles}
        table.add(
            part_name(hop.node, hop.part),
            f"{hop.counts.matched:,}",
            f"{hop.counts.lost:,}",
            *(format_us(found[p].value) + (" " if found[p].supported else "*") for p in listed),
            format_us(hop.latency_ns.max),
            f"{hop.slowest_of_worst:,}",
        )
    table.print()
    names = [part_name(hop.node, hop.part) for hop in hops]
    for packet in evaluation.worst[:MOST_PACKETS]:
        say(f"packet {packet.key}: {in_words(packet, names)}")


def in_words(packet: WorstRecord, nodes: list[str]) -> str:
    """How long a packet took, and at which nodes: ``4.1 ms, of which dut3 3.9 ms``."""
    from tailtap.base.units import format_time

    hops = packet.hops or []
    parts = sorted(
        ((ns, node) for node, ns in zip(nodes, hops, strict=True) if ns is not None),
        key=lambda part: -part[0],
    )
    told = ", ".join(f"{node} {format_time(ns)}" for ns, node in parts[:MOST_PARTS])
    missing = "; not every tap has a stamp of it" if None in hops else ""
    return f"{format_time(packet.latency)}, of which {told}{missing}"
