"""The maps of an experiment: one for each machine and placement, with the runs that it is of."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tailtap.analysis.runs.groups import Configuration
from tailtap.analysis.runs.run import Run
from tailtap.base.cpulist import ranges
from tailtap.show.report.machine.drawing import Drawing, draw
from tailtap.show.report.machine.placement import (
    GENERATOR,
    Placement,
    crossings,
    elsewhere,
    placement_of,
    shared,
)
from tailtap.show.report.machine.tree import Machine, machine_of

DRAWN = 8
"""Maps that are drawn; of further placements the lists say as much."""


@dataclass(frozen=True)
class Row:
    """A row of the list beside the map."""

    kind: str
    letter: str
    name: str
    cpus: str
    nodes: str


@dataclass(frozen=True)
class Map:
    """A machine, who worked where, and what that means."""

    title: str
    """What tells it from other maps; empty for the only one."""
    runs: tuple[str, ...]
    """Configurations that it is of."""
    machine: Machine
    rows: tuple[Row, ...]
    crossings: tuple[str, ...]
    shared: tuple[str, ...]
    drawing: Drawing | None
    """None for one too many."""

    @property
    def marked(self) -> tuple[tuple[str, str], ...]:
        """What is special of CPUs: the look of their cells, and words."""
        known = (
            ("isolated from the scheduler (isolcpus)", "isolated", self.machine.isolated),
            ("no tick while one task runs (nohz_full)", "tickless", self.machine.tickless),
        )
        return tuple((look, f"{words}: CPU {ranges(cpus)}") for words, look, cpus in known if cpus)


@dataclass
class _Same:
    """Runs with the same machine and placement."""

    machine: Machine
    placement: Placement
    role: str
    labels: list[str] = field(default_factory=list)


def maps_of(groups: Sequence[Configuration]) -> list[Map]:
    """The maps of one's own runs; none where their environment says nothing of cores."""
    found: dict[str, list[_Same]] = {}
    for group in groups:
        for member in group.members if group.origin is None else ():
            for machine, placement, role in _places(member.run):
                # Its memory may change while it runs, as that of virtual machines does.
                shape = [machine.nodes, machine.cores, machine.each_core, machine.cards,
                         sorted(machine.isolated), sorted(machine.online), machine.name,
                         role]  # fmt: skip
                alike = found.setdefault(json.dumps(shape, default=str), [])
                _enter(alike, _Same(machine, placement, role), group.label)
    every = [same for alike in found.values() for same in alike]
    return [_map(same, len(every) > 1, place < DRAWN) for place, same in enumerate(every)]


def _enter(alike: list[_Same], new: _Same, label: str) -> None:
    """Join what covers it, or what it covers: a wire has no device, and the same rest."""
    for same in alike:
        if new.placement.covers(same.placement):
            same.placement = new.placement
        elif not same.placement.covers(new.placement):
            continue
        same.labels += [] if label in same.labels else [label]
        return
    new.labels.append(label)
    alike.append(new)


def _places(run: Run) -> Iterator[tuple[Machine, Placement, str]]:
    """Each machine of a run, with who worked there; and the role of one that is not the DuT's."""
    placement = placement_of(run)
    machine = machine_of(run.environment)
    there = run.record.stations.get(GENERATOR) if run.record else None
    sender = machine_of(there.environment) if there else None
    beside = placement
    if there:
        placement, beside = elsewhere(placement)
    if machine is not None:
        yield machine, placement, ""
    if sender is not None:
        yield sender, beside, GENERATOR


def _map(same: _Same, several: bool, drawn: bool) -> Map:
    machine, placement = same.machine, same.placement
    found = crossings(placement, machine)
    works = [work for work in placement.works if work.cpus or work.ports]
    where = ", ".join(
        f"{work.name} on {ranges(work.cpus)}" for work in works if work.cpus and not work.ports
    )
    title = f"{machine.name or 'this machine'}: {where}" if several else ""
    return Map(
        title=title,
        runs=tuple(same.labels),
        machine=machine,
        rows=tuple(
            Row(
                work.kind,
                work.letter,
                work.name,
                ranges(work.cpus) or "wherever the kernel does it",
                ranges(machine.nodes_of(work.cpus)),
            )
            for work in works
        ),
        crossings=tuple(crossing.sentence for crossing in found),
        shared=tuple(shared(placement, machine)),
        drawing=draw(machine, placement, found) if drawn else None,
    )
