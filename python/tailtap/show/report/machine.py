"""What ran where on the machines of an experiment: a table for each machine and placement.

All of it is read from ``run.json``: what the machine consists of, what was asked for, how the run
was wired, and where its processes were.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, permutations
from typing import NamedTuple

from tailtap.analysis.runs.groups import Configuration, grouped
from tailtap.analysis.runs.run import Run
from tailtap.base.units import parse_cpus, ranges
from tailtap.records.machine import Environment
from tailtap.records.run import RunRecord

SELF = 10
"""How far a node is from itself; ACPI's SLIT."""
GENERATOR, TAPS, DUT, RECEIVE = "generator", "taps", "dut", "receive"
NEIGHBOUR = "neighbour"
"""Kinds of work."""
MOST_PORTS = 4
"""Of more ports only the number is said."""


@dataclass(frozen=True)
class Machine:
    """A machine as its environment describes it."""

    name: str
    nodes: Mapping[int, tuple[int, ...]]
    """The CPUs of each NUMA node."""
    distances: Mapping[tuple[int, int], int]
    cores: tuple[tuple[int, ...], ...]
    """The CPUs of each core, its threads."""
    online: frozenset[int]
    isolated: tuple[int, ...]
    """CPUs that the scheduler leaves alone (isolcpus)."""
    tickless: tuple[int, ...]
    """CPUs without a tick (nohz_full)."""
    cards: Mapping[str, int | None]
    """The NUMA node of each network card that says it."""
    parts: tuple[Row, ...]
    """Sockets, NUMA nodes and shared caches with their CPUs, and network cards."""

    @property
    def cpus(self) -> tuple[int, ...]:
        """All CPUs, those that are off as well."""
        return tuple(sorted(cpu for core in self.cores for cpu in core))

    def nodes_of(self, cpus: Iterable[int]) -> tuple[int, ...]:
        """The NUMA nodes of these CPUs."""
        wanted = set(cpus)
        return tuple(node for node, own in self.nodes.items() if wanted & set(own))


class Row(NamedTuple):
    """A row of a table: what it is, on which CPUs, of which NUMA nodes."""

    name: str
    cpus: str
    nodes: str


def machine_of(environment: Environment) -> Machine | None:
    """The machine of an environment; None where that says nothing of its cores."""
    topology, cpu = environment.topology, environment.cpu
    cores = tuple(found for text in topology.cores if (found := cpus_of(text)))
    if not cores:
        return None
    nodes = {int(name): cpus_of(cpus) for name, cpus in topology.numa_nodes.items()}
    cards = {nic.name: nic.numa_node for nic in environment.nics}
    machine = Machine(
        name=environment.hostname or "",
        nodes=nodes,
        distances={
            (int(node), other): distance
            for node, row in topology.node_distances.items()
            if len(row) == len(nodes)
            for other, distance in zip(nodes, row, strict=True)
        },
        cores=cores,
        online=frozenset(cpus_of(cpu.online) or (cpu for core in cores for cpu in core)),
        isolated=cpus_of(cpu.isolated),
        tickless=cpus_of(cpu.nohz_full),
        cards={name: node for name, node in cards.items() if node is not None and node >= 0},
        parts=(),
    )
    return replace(machine, parts=tuple(_parts(environment, machine)))


def _parts(environment: Environment, machine: Machine) -> Iterator[Row]:
    topology = environment.topology
    sets: list[tuple[str, str | None]] = [
        (f"socket {place}", text) for place, text in enumerate(topology.packages or ())
    ]
    sets += [
        (f"NUMA node {node}" + (f", {size >> 20} MiB" if size else ""), text)
        for node, text in topology.numa_nodes.items()
        for size in [topology.node_memory.get(node)]
    ]
    sets += [
        (f"L{cache.level} cache, {cache.size}", cache.cpus)
        for cache in topology.caches
        if cpus_of(cache.cpus) not in machine.cores
    ]
    for name, text in sets:
        yield Row(name, ranges(cpus_of(text)), ranges(machine.nodes_of(cpus_of(text))))
    for nic in environment.nics:
        served = (environment.interrupts.get(number) for number in nic.interrupts)
        cpus = {cpu for one in served if one for cpu in cpus_of(one.cpus)}
        node = machine.cards.get(nic.name)
        name = f"card {nic.name} {nic.driver or ''}".strip()
        yield Row(name, ranges(cpus), "" if node is None else str(node))


def cpus_of(text: str | None) -> tuple[int, ...]:
    """A set of CPUs as the kernel writes it; empty for anything else."""
    try:
        return parse_cpus(text or "")
    except ValueError:
        return ()


@dataclass(frozen=True)
class Work:
    """Somebody who works on CPUs."""

    kind: str
    name: str
    cpus: tuple[int, ...]
    """Empty: wherever the kernel does it."""
    ports: tuple[str, ...] = ()
    """Where packets come in that are received there: ``dut2:tt-in`` where there are many nodes."""
    nodes: tuple[str, ...] = ()
    """The nodes of the DuT that it is."""


@dataclass(frozen=True)
class Port:
    """A network card that is a port of the lab."""

    name: str
    card: str
    task: str
    """That of the node that it belongs to."""


@dataclass(frozen=True)
class Placement:
    """Where a run works on one machine."""

    works: tuple[Work, ...]
    ports: tuple[Port, ...] = ()
    """The network cards that it uses."""
    ways: tuple[tuple[tuple[str, str, str], ...], ...] = ()
    """Of each flow the ports that it passes: the task of each one's node, the node, the port."""

    def at(self, cpu: int) -> tuple[Work, ...]:
        """Who works on a CPU."""
        return tuple(work for work in self.works if cpu in work.cpus)

    def covers(self, other: Placement) -> bool:
        """Whether `other` is this one, or all of it but for a device and its cards.

        Neighbours are the same in both.
        """
        missing = set(self.works) - set(other.works)
        return (
            set(other.works) <= set(self.works)
            and set(other.ports) <= set(self.ports)
            and not any(work.kind == NEIGHBOUR for work in missing)
        )


@dataclass(frozen=True)
class Place:
    """A stop on a packet's way: CPUs, or a network card."""

    name: str
    nodes: frozenset[int]
    cpus: tuple[int, ...] = ()
    card: str | None = None


def placement_of(run: Run) -> Placement:
    """Where the roles of a run worked, those on another machine included."""
    record, traffic = run.record, run.traffic
    if record is None:
        return Placement(())
    works = [Work(GENERATOR, "generator", tuple(traffic.cpus or _one(traffic.cpu)))]
    if traffic.bidirectional:
        back = traffic.cpu if traffic.reverse_cpu is None else traffic.reverse_cpu
        works.append(Work(GENERATOR, "second generator", _one(back)))
    taps = record.instruments.get("taps")
    works.append(Work(TAPS, "taps and tailtap", cpus_of(taps.cpus if taps else None)))
    if run.traits is None or run.traits.has_dut:
        works += _devices(record, run.device_cpus)
        works += _receiving(record)
    for name, one in record.neighbours.items():
        cpus = tuple(int(cpu) for cpu in one.cpus)
        works.append(Work(NEIGHBOUR, f"{name} ({one.kind})", cpus))
    tasks = {node.name: node.task for node in record.nodes}
    ways = tuple(
        tuple(
            (tasks.get(node, ""), node, port) for node, _, port in (p.partition(":") for p in path)
        )
        for path in (flow.path for flow in record.flows)
    )
    return Placement(
        tuple(work for work in works if work.cpus or work.kind == RECEIVE),
        tuple(_ports(record, tasks)),
        ways,
    )


def elsewhere(placement: Placement) -> tuple[Placement, Placement]:
    """What of a placement is on the DuT's machine, and on the generator's where it is another one.

    A link of the lab joins generator and taps, so that these are on one machine.
    """
    there = (GENERATOR, TAPS)
    return (
        Placement(
            tuple(work for work in placement.works if work.kind not in there),
            tuple(port for port in placement.ports if port.task == "dut"),
        ),
        Placement(
            tuple(work for work in placement.works if work.kind in there),
            tuple(port for port in placement.ports if port.task != "dut"),
        ),
    )


def crossings(placement: Placement, machine: Machine) -> list[str]:
    """A sentence for each way from one NUMA node to another, and for what is on several."""
    if len(machine.nodes) < 2:
        return []
    found = [
        f"{what}: {_there(start)} → {_there(end)}{_far(machine, start, end)}"
        for what, start, end in _steps(placement, machine)
        if start.nodes and end.nodes and start.nodes.isdisjoint(end.nodes)
    ]
    for work in placement.works:
        nodes = machine.nodes_of(work.cpus)
        # A neighbour has a thread on each of its CPUs, and nothing to share between them.
        if len(nodes) > 1 and work.kind != NEIGHBOUR:
            may = "may run" if work.kind == TAPS else "is"
            found.append(
                f"{work.name} {may} on NUMA nodes {ranges(nodes)} (CPU {ranges(work.cpus)})"
            )
    return list(dict.fromkeys(found))


def shared(placement: Placement, machine: Machine) -> list[str]:
    """Who shares a CPU or a core with whom, of those whose lateness counts."""
    found: list[str] = []
    for cpu in machine.cpus:
        who = [work for work in placement.at(cpu) if work.kind != RECEIVE]
        receiving = [work for work in placement.at(cpu) if work.kind == RECEIVE]
        if receiving and who and not any(work.kind == DUT for work in who):
            who += receiving
        if sum(len(work.nodes) or 1 for work in who) > 1:
            found.append(f"CPU {cpu}: {_and(work.name for work in who)} share it")
    beside: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for core in machine.cores:
        counting = {cpu: _counting(placement, cpu) for cpu in core if cpu in machine.online}
        for cpu, other in permutations(counting, 2):
            if counting[cpu] and (cpu < other or not counting[other]):  # each pair once
                theirs = _and(work.name for work in placement.at(other) if work.kind != RECEIVE)
                beside.setdefault((counting[cpu], theirs), []).append((cpu, other))
    for (whose, theirs), pairs in beside.items():
        mine, others = ({pair[side] for pair in pairs} for side in (0, 1))
        if whose == theirs:
            found.append(f"{whose} on both threads of a core: CPU {ranges(mine | others)}")
        else:
            found.append(
                f"{whose} on CPU {ranges(mine)} shares its core with CPU {ranges(others)}:"
                f" {theirs or 'nothing of the run'}"
            )
    return found


def _counting(placement: Placement, cpu: int) -> str:
    """Those on a CPU whose lateness is the packets'; empty where there are none."""
    return _and(work.name for work in placement.at(cpu) if work.kind in (DUT, GENERATOR))


def _devices(record: RunRecord, cpus: tuple[int, ...]) -> Iterator[Work]:
    """The DuT on its `cpus`; where it has several nodes, those of the same CPUs as one."""
    nodes = [node for node in record.nodes if node.task == "dut"]
    if len(nodes) < 2:
        yield Work(DUT, "DuT", cpus, nodes=tuple(node.name for node in nodes))
        return
    for theirs, alike in grouped(nodes, lambda node: tuple(node.cpus)).items():
        names = [node.name for node in alike]
        name = _and(names) if len(names) <= MOST_PORTS else f"{len(names)} nodes"
        yield Work(DUT, name, theirs, nodes=tuple(names))


def _receiving(record: RunRecord) -> Iterator[Work]:
    """Where packets are received that come in at the DuT's ports: ports of the same CPUs as one."""
    ports = record.placement.ports if record.placement else {}
    if ports:
        where = {name: tuple(port.cpus) for name, port in ports.items() if port.cpus is not None}
    else:
        where = {
            port: tuple(node.cpus)
            for node in record.nodes
            if node.task == "dut" and node.cpus and node.kind != "guest"
            for port in _entered(record, node.name)
        }
    for cpus, names in grouped(where, where.__getitem__).items():
        where_to = _and(names) if len(names) <= MOST_PORTS else f"{len(names)} ports"
        yield Work(RECEIVE, f"receives at {where_to}", cpus, tuple(names))


def _entered(record: RunRecord, node: str) -> list[str]:
    """The ports through which a flow comes to a node from another one."""
    found = (
        after.partition(":")[2]
        for flow in record.flows
        for before, after in pairwise(flow.path)
        if after.partition(":")[0] == node != before.partition(":")[0]
    )
    return list(dict.fromkeys(found))


def _ports(record: RunRecord, tasks: Mapping[str, str]) -> Iterator[Port]:
    for link in record.links:
        for end, card in zip(link.ends, link.cards or (), strict=False):
            node, _, port = end.partition(":")
            yield Port(port, card, tasks.get(node, ""))


def _steps(placement: Placement, machine: Machine) -> Iterator[tuple[str, Place, Place]]:
    """Neighbouring stops on the way of packets, and of stamps; a cable is no crossing."""
    work = {one.name: one for one in placement.works}
    cards = {port.name: port for port in placement.ports}
    devices, taps = (
        [one for one in placement.works if one.kind == DUT],
        work.get("taps and tailtap"),
    )
    receiving = [one for one in placement.works if one.kind == RECEIVE and one.cpus]
    for number, way in enumerate(placement.ways or ((),)):
        sender = work.get("second generator" if number else "generator")
        stops: list[Place] = [] if sender is None else [_of(sender, machine)]
        inside = None
        for task, node, port in way or (("dut", "", ""),):
            if port in cards:
                stops.append(_at_card(cards[port], machine))
            if task == "dut" and node != inside:
                inside, names = node, {port, f"{node}:{port}"}
                here = [one for one in devices if node in one.nodes] or devices[:1]
                stops += (_of(one, machine) for one in receiving if names & {*one.ports})
                stops += (_of(one, machine) for one in here)
        yield from (
            ("packets", start, end)
            for start, end in pairwise(stops)
            if start.card is None or end.card is None
        )
    for stamping in (work.get("generator"), *devices):
        if taps is not None and stamping is not None:
            yield "stamps", _of(stamping, machine), _of(taps, machine)


def _of(work: Work, machine: Machine) -> Place:
    """The stop of those who work on CPUs."""
    return Place(work.name, frozenset(machine.nodes_of(work.cpus)), work.cpus)


def _at_card(port: Port, machine: Machine) -> Place:
    node = machine.cards.get(port.card)
    return Place(
        f"card {port.card} ({port.name})",
        frozenset() if node is None else frozenset((node,)),
        card=port.card,
    )


def _there(place: Place) -> str:
    cpus = f" on CPU {ranges(place.cpus)}" if place.cpus else ""
    return f"{place.name}{cpus} of NUMA node {ranges(place.nodes)}"


def _far(machine: Machine, start: Place, end: Place) -> str:
    """How far it is, where the machine says so."""
    far = [machine.distances.get((a, b)) for a in start.nodes for b in end.nodes]
    known = [distance for distance in far if distance is not None]
    return f" (distance {max(known)}; {SELF} is local)" if known else ""


def _and(names: Iterable[str]) -> str:
    """Names as a list of words."""
    *first, last = [*dict.fromkeys(names)] or [""]
    return f"{', '.join(first)} and {last}" if first else last


def _one(cpu: int | None) -> tuple[int, ...]:
    return () if cpu is None else (cpu,)


@dataclass(frozen=True)
class Placed:
    """Who worked where on a machine, and what that means."""

    title: str
    """What tells it from others; empty for the only one."""
    runs: tuple[str, ...]
    """Configurations that it is of."""
    machine: Machine
    rows: tuple[Row, ...]
    crossings: tuple[str, ...]
    shared: tuple[str, ...]

    @property
    def marked(self) -> list[str]:
        """What is special of CPUs, in words."""
        known = (
            ("isolated from the scheduler (isolcpus)", self.machine.isolated),
            ("no tick while one task runs (nohz_full)", self.machine.tickless),
        )
        return [f"{words}: CPU {ranges(cpus)}" for words, cpus in known if cpus]


@dataclass
class _Same:
    """Runs with the same machine and placement."""

    machine: Machine
    placement: Placement
    role: str
    labels: list[str] = field(default_factory=list)


def placed(groups: Sequence[Configuration]) -> list[Placed]:
    """Who worked where in one's own runs; nothing where their environment says nothing of cores."""
    found: dict[str, list[_Same]] = {}
    for group in groups:
        for member in group.members if group.origin is None else ():
            for machine, placement, role in _places(member.run):
                # Its memory may change while it runs, as that of virtual machines does.
                shape = [machine.nodes, machine.cores, machine.cards, machine.isolated,
                         sorted(machine.online), machine.name, role]  # fmt: skip
                alike = found.setdefault(json.dumps(shape, default=str), [])
                _enter(alike, _Same(machine, placement, role), group.label)
    every = [same for alike in found.values() for same in alike]
    return [_placed(same, len(every) > 1) for same in every]


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


def _placed(same: _Same, several: bool) -> Placed:
    machine, placement = same.machine, same.placement
    works = [work for work in placement.works if work.cpus or work.ports]
    where = ", ".join(
        f"{work.name} on {ranges(work.cpus)}" for work in works if work.cpus and not work.ports
    )
    title = f"{machine.name or 'this machine'}: {where}" if several else ""
    return Placed(
        title=title,
        runs=tuple(same.labels),
        machine=machine,
        rows=tuple(
            Row(
                work.name,
                ranges(work.cpus) or "wherever the kernel does it",
                ranges(machine.nodes_of(work.cpus)),
            )
            for work in works
        ),
        crossings=tuple(crossings(placement, machine)),
        shared=tuple(shared(placement, machine)),
    )
