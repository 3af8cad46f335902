"""What a machine consists of, as boxes in boxes: sockets, NUMA nodes, caches, cores, threads.

All that is needed is in the `environment` of ``run.json``, so that a map is drawn anywhere. What
it does not say is left out; a set that overlaps with others, in part alone, has no box.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tailtap.base.cpulist import parse_cpus
from tailtap.base.units import format_size
from tailtap.records.machine import Environment, Topology

CACHE_LETTERS = {"Data": "d", "Instruction": "i"}
"""Behind the level of a cache that is not for both."""
SELF = 10
"""How far a node is from itself; ACPI's SLIT."""


@dataclass(frozen=True)
class Box:
    """CPUs that have something in common, and what is in it."""

    titles: tuple[str, ...]
    cpus: tuple[int, ...]
    children: tuple[Box, ...] = ()
    nodes: tuple[int, ...] = ()
    """The NUMA nodes that it is: network cards are drawn there."""
    core: bool = False


@dataclass(frozen=True)
class Card:
    """A network card."""

    name: str
    node: int | None
    """None where the card does not say."""
    driver: str
    interrupts: tuple[int, ...]
    """The CPUs that its interrupts went to before the run."""


@dataclass(frozen=True)
class Machine:
    """A machine as its environment describes it."""

    name: str
    boxes: tuple[Box, ...]
    nodes: Mapping[int, tuple[int, ...]]
    """The CPUs of each NUMA node."""
    distances: Mapping[tuple[int, int], int]
    cores: tuple[tuple[int, ...], ...]
    each_core: tuple[str, ...]
    """What every core has for itself: ``L1d 32 KiB``."""
    online: frozenset[int]
    isolated: frozenset[int]
    """CPUs that the scheduler leaves alone (isolcpus)."""
    tickless: frozenset[int]
    """CPUs without a tick (nohz_full)."""
    cards: tuple[Card, ...] = field(default=())

    @property
    def cpus(self) -> tuple[int, ...]:
        """All CPUs, those that are off as well."""
        return tuple(sorted(cpu for core in self.cores for cpu in core))

    def nodes_of(self, cpus: Iterable[int]) -> tuple[int, ...]:
        """The NUMA nodes of these CPUs."""
        wanted = set(cpus)
        return tuple(node for node, own in self.nodes.items() if wanted & set(own))

    def card(self, name: str) -> Card | None:
        """The card of this name."""
        return next((card for card in self.cards if card.name == name), None)


def machine_of(environment: Environment) -> Machine | None:
    """The machine of an environment; None where that says nothing of its cores."""
    topology, cpu = environment.topology, environment.cpu
    cores = tuple(found for text in topology.cores if (found := cpus_of(text)))
    if not cores:
        return None
    every = tuple(sorted(cpu for core in cores for cpu in core))
    nodes = {int(name): cpus_of(cpus) for name, cpus in topology.numa_nodes.items()}
    sockets = [cpus_of(cpus) for cpus in topology.packages or ()] or [every]
    caches, each_core = _caches(topology, set(cores))
    sets: list[tuple[tuple[int, ...], str, int | None]] = [
        *((cpus, f"Socket {number}", None) for number, cpus in enumerate(sockets)),
        *((cpus, _node_title(topology, node), node) for node, cpus in nodes.items() if cpus),
        *((cpus, title, None) for cpus, title in caches),
    ]
    distances = {
        (node, other): distance
        for node, row in topology.node_distances.items()
        if len(row) == len(nodes)
        for other, distance in zip(nodes, row, strict=True)
    }
    return Machine(
        name=environment.hostname or "",
        boxes=_nested(sets, cores),
        nodes=nodes,
        distances={(int(node), other): value for (node, other), value in distances.items()},
        cores=cores,
        each_core=each_core,
        online=frozenset(cpus_of(cpu.online)) or frozenset(every),
        isolated=frozenset(cpus_of(cpu.isolated)),
        tickless=frozenset(cpus_of(cpu.nohz_full)),
        cards=tuple(_cards(environment)),
    )


def _caches(
    topology: Topology, cores: set[tuple[int, ...]]
) -> tuple[list[tuple[tuple[int, ...], str]], tuple[str, ...]]:
    """The caches that several cores share, largest first, and what all cores have of their own."""
    shared: list[tuple[tuple[int, ...], str]] = []
    own: dict[str, int] = {}
    for row in topology.caches:
        level = f"L{row.level}{CACHE_LETTERS.get(row.type, '')}"
        cpus, title = cpus_of(row.cpus), f"{level} {_size(row.size)}"
        if cpus in cores:
            own[title] = own.get(title, 0) + 1
        else:
            shared.append((cpus, title))
    alike = tuple(title if n == len(cores) else f"{title} ({n} cores)" for title, n in own.items())
    return shared, alike


def _nested(
    sets: list[tuple[tuple[int, ...], str, int | None]], cores: tuple[tuple[int, ...], ...]
) -> tuple[Box, ...]:
    """Boxes for sets that are nested or apart; equal ones are one box, the first one's title first.

    Larger sets are around smaller ones. A core that is in none stands alone.
    """
    merged: dict[tuple[int, ...], tuple[list[str], list[int]]] = {}
    for cpus, title, node in sets:
        titles, nodes = merged.setdefault(tuple(sorted(cpus)), ([], []))
        titles.append(title)
        nodes += [] if node is None else [node]
    kept: list[tuple[int, ...]] = []
    for cpus in sorted(merged, key=lambda cpus: (-len(cpus), cpus)):
        own = set(cpus)
        if all(own <= set(other) or own.isdisjoint(other) for other in (*kept, *cores)
               if not set(other) <= own):  # fmt: skip
            kept.append(cpus)

    def inside(cpus: set[int], candidates: list[tuple[int, ...]]) -> tuple[Box, ...]:
        found: list[Box] = []
        left = set(cpus)
        for place, one in enumerate(candidates):
            if set(one) <= left:
                left -= set(one)
                titles, nodes = merged[one]
                children = inside(set(one), candidates[place + 1 :])
                found.append(Box(tuple(titles), one, children, tuple(nodes)))
        found += (Box((), core, core=True) for core in cores if set(core) <= left)
        return tuple(sorted(found, key=lambda box: box.cpus[0]))

    return inside({cpu for core in cores for cpu in core}, kept)


def _node_title(topology: Topology, node: int) -> str:
    memory = topology.node_memory.get(str(node))
    return f"NUMA node {node}" + (f", {_rounded(memory)}" if memory else "")


def _rounded(size: int) -> str:
    """A memory's size with two digits or more: ``8.6 GiB``."""
    for unit, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB")):
        if size >= unit:
            return f"{size / unit:.1f}".removesuffix(".0") + f" {name}"
    return format_size(size)


def _size(text: str) -> str:
    """The kernel's ``32768K`` as ``32 MiB``."""
    digits = text.rstrip("K")
    return _rounded(int(digits) * 1024).replace(".0 ", " ") if digits.isdecimal() else text


def _cards(environment: Environment) -> Iterator[Card]:
    for nic in environment.nics:
        found = [environment.interrupts.get(number) for number in nic.interrupts]
        going = {cpu for interrupt in found if interrupt for cpu in cpus_of(interrupt.cpus)}
        node = nic.numa_node
        yield Card(
            nic.name,
            node if node is not None and node >= 0 else None,
            nic.driver or "",
            tuple(sorted(going)),
        )


def cpus_of(text: str | None) -> tuple[int, ...]:
    """A set of CPUs as the kernel writes it; empty for anything else."""
    try:
        return parse_cpus(text or "")
    except ValueError:
        return ()
