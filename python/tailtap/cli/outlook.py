"""What `tailtap run --check` finds, on the terminal, and the networks that runs have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from tailtap.cli.terminal import say

if TYPE_CHECKING:
    from tailtap.experiment.model import Experiment
    from tailtap.experiment.plan import PlannedRun
    from tailtap.measure.check import Outlook


def differences(differs: Sequence[str]) -> Iterator[str]:
    """The lines that say how an experiment differs from the one that it follows."""
    if differs:
        yield "this experiment differs from the one that it follows:"
        yield from (f"- {sentence}" for sentence in differs)


def print_outlook(outlook: Outlook) -> None:
    """Print the planned runs with the numbers of what was found, and below it what that is."""
    from tailtap.cli.console import print_table
    from tailtap.show.sections import Cell, Column, row, table

    for line in differences(outlook.differs):
        say(line)
    numbers: dict[str, int] = {}
    possible = "yes" if outlook.as_root else "as root"
    rows = []
    for run, findings in outlook.runs:
        said = [*findings.problems, *findings.notes]
        places = sorted({numbers.setdefault(text, len(numbers) + 1) for text in said})
        answer = Cell("no", "alarm") if findings.problems else possible
        rows.append(row(run.slug, answer, ", ".join(map(str, places))))
    columns = Column("run", wrap=16), Column("possible"), Column("see", wrap=8)
    print_table(table("", columns, rows))
    print_networks(run for run, _ in outlook.runs)
    remarks = [row(str(number), text) for text, number in numbers.items()]
    remarks += [row("all", text) for text in (*outlook.whole.problems, *outlook.whole.notes)]
    if remarks:
        say()
        print_table(table("", (Column(right=True), Column(wrap=24)), remarks))
        say()
    minutes, stamps = outlook.seconds / 60, outlook.stamp_bytes / 1e6
    say(f"{len(outlook.runs)} runs: {minutes:.1f} min of traffic, {stamps:.1f} MB of stamps")


LONGEST = 8
"""Of more nodes in a row the inner ones are left out."""
IN, OUT = "in", "out"


@dataclass(frozen=True)
class Drawing:
    """What is drawn of a network; equal for runs that are wired alike."""

    nodes: tuple[tuple[str, ...], ...]
    """Name, platform, forwarder, CPUs, and neighbours of each; empty for a line of equal nodes."""
    flows: tuple[tuple[str, ...], ...]
    """Name, rate and path of each."""


def drawing_of(experiment: Experiment) -> Drawing:
    """How its nodes are joined, and the ways of its flows."""
    from tailtap.base.units import format_rate, ranges

    graph, dut = experiment.graph(), experiment.dut
    paths = {flow.name: (IN, *flow.passed, OUT) for flow in graph.flows}
    beside: dict[str, dict[str, None]] = {}
    for path in paths.values():
        for before, after in pairwise(path):
            beside.setdefault(before, {})[after] = None
            beside.setdefault(after, {})[before] = None
    rows = tuple(
        (
            one.name,
            one.dut.platform,
            one.dut.forwarder,
            ranges(one.cpus),
            ", ".join(beside[one.name]),
        )
        for one in dut.members
        if one.name in beside and (dut.named_nodes or dut.flows)
    )
    flows = tuple(
        (name, format_rate(experiment.traffic_of(name).rate), chain(path))
        for name, path in paths.items()
    )
    return Drawing(rows, flows)


def chain(path: Sequence[str]) -> str:
    """A path as `dut.links` has it."""
    if len(path) > LONGEST + 2:
        path = [*path[:3], "…", *path[-2:]]
    return " - ".join(path)


def print_networks(runs: Iterable[PlannedRun]) -> None:
    """Print each network that has several nodes or flows once, with the runs that have it."""
    found: dict[Drawing, list[str]] = {}
    known: dict[int, Drawing] = {}  # repeats are the same experiment
    for run in runs:
        experiment = run.experiment
        if len(experiment.dut.members) == 1 and not experiment.dut.flows:
            continue
        if id(experiment) not in known:
            known[id(experiment)] = drawing_of(experiment)
        found.setdefault(known[id(experiment)], []).append(run.slug)
    for drawing, slugs in found.items():
        more = f" and {len(slugs) - 1} more" if len(slugs) > 1 else ""
        if not drawing.nodes:
            say(f"{slugs[0]}{more}: {drawing.flows[0][-1]}")
            continue
        say()
        say(f"network of {slugs[0]}{more}:")
        _print(("node", "platform", "forwarder", "CPUs", "joined with"), drawing.nodes)
        _print(("flow", "rate", "path"), drawing.flows)
    if found:
        say()


def _print(names: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from tailtap.cli.console import print_table
    from tailtap.show.sections import row, table, words

    print_table(table("", words(*names, wrap=10), (row(*one) for one in rows)))
