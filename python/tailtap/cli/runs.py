"""What commands print of the runs of an experiment: tails, hops, flows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tailtap.cli.terminal import say

if TYPE_CHECKING:
    from tailtap.base.errors import MachineError
    from tailtap.records.evaluation import WorstRecord
    from tailtap.records.experiment import FlowsRow, RunRow

PERCENTILES = (0.5, 0.99, 0.999, 0.9999, 0.99999)
"""The columns of the table unless asked otherwise."""
MOST_RUNS = 3
"""Runs whose hops are printed; of more, the page and the files tell."""
MOST_PACKETS = 5
"""Worst packets of a line that are told of."""
MOST_PARTS = 3
"""Hops that are named of a packet, the slowest first."""


def print_runs(runs: Sequence[RunRow], folder: Path, ps: Sequence[float] = PERCENTILES) -> None:
    """Print the tail of every run."""
    from tailtap.cli.console import print_table
    from tailtap.show.sections.latency import runs_table

    print_table(runs_table(runs, ps))
    say(f"results: {folder}")


def print_flows(flows: Sequence[FlowsRow]) -> None:
    """Print which flow of each measurement was worst, and how fairly the flows were served."""
    from tailtap.cli.console import print_table
    from tailtap.show.sections.latency import together_table

    print_table(together_table(flows, "first run", {}))


def print_hops(runs: Sequence[RunRow]) -> None:
    """Print the hops of the runs that have some: who lost packets, and who made the worst ones."""
    from tailtap.cli.console import print_section
    from tailtap.show.sections.latency import hop_name, hop_section

    found = [(row, row.evaluation) for row in runs if row.evaluation and row.evaluation.hops]
    if len(found) > MOST_RUNS:
        say(f"{len(found)} runs have hops: `tailtap report` shows them all")
        return
    for row, evaluation in found:
        hops = evaluation.hops or []
        print_section(hop_section(hops, row.slug + " (invalid)" * (row.valid is False)))
        names = list(map(hop_name, hops))
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


def problem_of(rows: Sequence[RunRow]) -> MachineError | None:
    """What a command ends with when some of these runs failed or are invalid."""
    from tailtap.base.errors import MachineError
    from tailtap.records.warnings import invalidating

    failed = [(row.slug, row.error) for row in rows if row.status != "done"]
    invalid = [row for row in rows if row.valid is False]
    # In a measurement of several flows, the generator of another one may be the reason.
    why = [(row.slug, one.message) for row in invalid for one in invalidating(row.warnings)[:1]]
    said = []
    if failed:
        said.append(
            f"{len(failed)} of {len(rows)} runs failed, {failed[0][0]} first: {failed[0][1]}"
        )
    if invalid:
        verb = "is" if len(invalid) == 1 else "are"
        slug, reason = why[0] if why else (invalid[0].slug, "another flow of it is")
        said.append(f"{len(invalid)} of {len(rows)} runs {verb} invalid, {slug} first: {reason}")
    return MachineError("; ".join(said)) if said else None
