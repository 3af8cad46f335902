"""Where a node's packets are received, and what of that crosses from one NUMA node to another.

`none`, `node` and `core` are the three placements that hardware-supported-containers, sections
III-B and IV, compares: interrupts left to the kernel, on all cores of the card's NUMA node, and
each on one core. Its first core does the housekeeping and processes no packets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal

from tailtap.base.errors import InputError, MachineError
from tailtap.base.units import ranges
from tailtap.host.cpu.cpus import Numa
from tailtap.records.run import AskedPlacement

Irq = Literal["none", "node", "core"] | tuple[int, ...]
Napi = Literal["softirq", "threads", "busy-poll"]
NONE: Final = "none"
NODE: Final = "node"
CORE: Final = "core"
BUSY_POLL: Final = "busy-poll"
HOUSEKEEPING = 0
"""The CPU that `node` leaves out: it boots the machine and handles everybody else's interrupts."""


@dataclass(frozen=True)
class Placement:
    """Where the receive work of a node's ports belongs, and who does it."""

    irq: Irq = CORE
    """`none`: where the kernel puts it. `node`: the CPUs of the card's NUMA node. `core`: the CPUs
    of the node of the graph. Or these CPUs."""
    napi: Napi = "softirq"
    """What polls each queue on these CPUs: a softirq, or a kernel thread of its own (threaded
    NAPI), which with `busy-poll` never sleeps."""
    queues: int | None = None
    """How many queues each network card has; None: as many as it has."""

    @property
    def threads(self) -> bool:
        return self.napi != "softirq"

    def record(self) -> AskedPlacement:
        irq = self.irq if isinstance(self.irq, str) else list(self.irq)
        return AskedPlacement(irq=irq, napi=self.napi, queues=self.queues)


DEFAULT = Placement()


def cpus_of(
    placement: Placement, cpus: Sequence[int], card: str | None, numa: Numa
) -> tuple[int, ...]:
    """Where packets are received that come in at a port; empty: wherever the kernel does it.

    The port is `card`, or the end of a virtual link, and belongs to a node that works on `cpus`.
    Raises `InputError`, `MachineError` for what this machine does not have.
    """
    irq = placement.irq
    if irq == NONE:
        return ()
    if irq == CORE:
        return tuple(cpus)
    if irq == NODE:
        return _near(cpus, card, numa)
    missing = [cpu for cpu in irq if cpu not in numa.online]
    if missing:
        raise MachineError(
            f"dut.irq: CPU {ranges(missing)} is not there or is off: choose from "
            f"{ranges(numa.online)}"
        )
    return tuple(irq)


def _near(cpus: Sequence[int], card: str | None, numa: Numa) -> tuple[int, ...]:
    """All CPUs of the node that a port belongs to, but the one of the housekeeping."""
    instead = "choose core, or name the CPUs"
    if not numa.nodes:
        raise MachineError(
            f"dut.irq: node: this kernel knows no NUMA nodes (CONFIG_NUMA): {instead}"
        )
    if card is None:
        nodes = numa.of_cpus(cpus)
        if len(nodes) != 1:
            raise InputError(
                f"dut.irq: node: a virtual link belongs to the NUMA node of dut.cpus, and CPUs "
                f"{ranges(cpus)} are of nodes {ranges(nodes)}: {instead}"
            )
        [node] = nodes
    else:
        known = numa.of_card(card)
        if known is None:
            raise MachineError(
                f"dut.irq: node: {card} does not say to which of the NUMA nodes "
                f"{ranges(numa.nodes)} it belongs, as virtual cards do: {instead}"
            )
        node = known
    found = tuple(
        cpu for cpu in numa.nodes.get(node, ()) if cpu != HOUSEKEEPING or HOUSEKEEPING in cpus
    )
    if not found:
        raise MachineError(
            f"dut.irq: node: NUMA node {node} has no CPU that is on, besides CPU {HOUSEKEEPING} "
            f"for the housekeeping: {instead}"
        )
    return found


def send_queues(cpus: Sequence[int], queues: int) -> Sequence[tuple[int, ...]]:
    """The CPUs that send through each queue (XPS), so that as few as possible share one.

    Documentation/networking/scaling.rst of the kernel: an exclusive queue needs no lock's waiting.
    """
    if queues >= len(cpus):
        return [(cpus[queue % len(cpus)],) for queue in range(queues)]
    return [tuple(cpus[queue::queues]) for queue in range(queues)]


@dataclass(frozen=True)
class Placed:
    """What belongs to one NUMA node or another: the CPUs of a node of the graph, and its ports."""

    cpus: tuple[int, ...]
    cards: Mapping[str, str]
    """The network cards by their ports."""
    receiving: Mapping[str, tuple[int, ...]]
    """By port, where its packets are received; empty: wherever the kernel does it."""


def crossings(name: str, placed: Placed, numa: Numa) -> Iterator[str]:
    """A sentence for each way on which packets of node `name` go from one NUMA node to another.

    The kernel places a packet's memory on the node of its card (alloc_pages_node in the drivers),
    so that whoever works elsewhere reads it through the link between the nodes.
    """
    if len(numa.nodes) < 2:
        return
    own = set(numa.of_cpus(placed.cpus))
    if len(own) > 1:
        yield f"CPUs {ranges(placed.cpus)} of {name} are on NUMA nodes {ranges(own)}"
    where = {port: numa.of_card(card) for port, card in placed.cards.items()}
    for port, node in where.items():
        if node is not None and own and node not in own:
            yield (
                f"the card {placed.cards[port]} ({port}) is on NUMA node {node}, and CPUs "
                f"{ranges(placed.cpus)} of {name} are on {ranges(own)}"
            )
    for port, cpus in placed.receiving.items():
        node = where.get(port)
        near = own if node is None else {node}
        far = [cpu for cpu in cpus if near and not set(numa.of_cpus([cpu])) <= near]
        if far and set(cpus) != set(placed.cpus):
            yield (
                f"packets of {port} are received on CPUs {ranges(far)} of NUMA node "
                f"{ranges(numa.of_cpus(far))}, and belong to {ranges(near)}"
            )
    known = sorted((port, node) for port, node in where.items() if node is not None)
    for (port, node), (other, behind) in pairwise(known):
        if node != behind:
            yield (
                f"the cards {placed.cards[port]} ({port}) and {placed.cards[other]} ({other}) are "
                f"on NUMA nodes {node} and {behind}: {name} copies packets from one to the other"
            )


def facts(name: str, placed: Placed, numa: Numa) -> dict[str, Any]:
    """`placement` of ``run.json`` for a node."""
    cards = {
        port: {"card": card, "numa_node": numa.of_card(card)} for port, card in placed.cards.items()
    }
    receiving = {port: {"cpus": list(cpus)} for port, cpus in placed.receiving.items()}
    return {
        "ports": {
            port: {**cards.get(port, {}), **receiving.get(port, {})}
            for port in {**receiving, **cards}
        },
        "numa_nodes": {str(node): ranges(cpus) for node, cpus in numa.nodes.items()},
        "crossings": list(crossings(name, placed, numa)),
    }
