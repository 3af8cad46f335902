"""Compiles a graph to the resources of one machine.

It is a pure function: the same graph and name give the same resources, in the same order.

A packet that is sent into a veth pair is received by the other end in the *sender's* softirq, on
the sender's core, unless its port is steered elsewhere. So:

- The ports through which packets enter a DuT are steered to where its `placement` says: its own
  CPUs, unless that says otherwise (receive packet steering, or threads that poll). So would the
  interrupts of a network card be: the DuT works there, woken up by an interrupt. Those of its real
  cards are sent there as well, and each of their queues sends for few CPUs.
- The taps' ports are left alone. The ingress tap then stamps on the generator's CPU as it hands
  the packet to the DuT, and the egress stamp is taken on the DuT's as the DuT hands it back: no
  wake-up and no waiting for another CPU is counted as the DuT's latency. The interrupts of real
  cards there go where tailtap itself works.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tailtap.base.errors import InputError
from tailtap.base.units import cpu_mask, list_cpus
from tailtap.host.changes.kernel_values import KernelValue
from tailtap.host.changes.resource import Resource
from tailtap.host.cpu.cpus import Numa
from tailtap.host.net import namespaces
from tailtap.host.net.card_settings import CardQueues
from tailtap.host.net.cards import Card
from tailtap.host.net.namespaces import Reached
from tailtap.host.net.port_work import CardInterrupts, PortThreads
from tailtap.host.net.virtual_functions import VirtualFunction, VirtualFunctions
from tailtap.lab.topology.graph import TASKS, Graph, Link, Node, Port, Task
from tailtap.lab.topology.numbering import DESTINATION_MAC, LEAVING_MAC, Addresses, numbered
from tailtap.lab.topology.placement import (
    BUSY_POLL,
    CORE,
    DEFAULT,
    Placed,
    Placement,
    cpus_of,
    send_queues,
)

BELOW, BELOW_INDEX = "below", 100_000
"""The namespace of what ports are reached by, and what numbers there have more."""
FIRST_INDEX = 101
"""The number of the first end of a veth pair: beyond those that namespaces hand out themselves."""


@dataclass(frozen=True)
class Step:
    """One thing to make."""

    resource: Resource
    port: Port | None = None
    """The port whose network card it lends or sets, if it does."""


def name_of(identity: str, node: str) -> str:
    """What the namespace, container or domain of a node is called: ``tt-ID-NODE``."""
    return f"tt-{identity}-{node}"


def compile_graph(
    graph: Graph,
    identity: str,
    service_cpus: Iterable[int],
    numa: Numa,
    tasks: Collection[Task] = TASKS,
) -> Mapping[str, Sequence[Step]]:
    """What is made for each node with one of these tasks, in the order in which it is made.

    Nodes are in their order too. A virtual link belongs to the later one of its nodes, and a
    network card to its own node, as the other end of its cable may be on another machine. What a
    virtual machine has of a card is passed through to it: nothing more is set here.

    `identity` are the six digits of the lab, `service_cpus` where tailtap itself works, and `numa`
    is what the machine says of its CPUs and of the cards. Raises `InputError`, `MachineError` for
    links that cannot be made, and for placements that this machine has no CPUs for.
    """
    _check_cores(graph)
    order = {node.name: place for place, node in enumerate(graph.nodes)}
    steps = {node.name: [Step(resource) for resource in _node(graph, node, identity)]
             for node in graph.nodes if node.task in tasks}  # fmt: skip
    addresses = numbered(graph)
    service = list_cpus(service_cpus)
    reached = [port.node for link in graph.links if (port := link.reached(graph.devices))]
    for name in [name for name in steps if name in reached][:1]:
        steps[name].append(Step(namespaces.Namespace(name_of(identity, BELOW))))
    with_functions = {port.node for port, _ in graph.functions}
    for name in [name for name in steps if name in with_functions][:1]:
        steps[name] += (Step(resource) for resource in _functions(graph))
    for number, link in enumerate(graph.links):
        if link.carded:
            for port, card in link.carded:
                if port.node in steps:
                    guest = graph.node(port.node).kind == "guest"
                    if (function := link.function(port)) is not None:
                        called = None if guest else _called(graph, link, port, identity)
                        mac = addresses[port].mac if port in addresses else _outer(graph, port)
                        made = VirtualFunction(
                            function.card, function.function, called, mac, link.vlan or 0
                        )
                        steps[port.node].append(Step(made, port if called is None else None))
                    if guest:
                        _require_default(graph.node(port.node))
                        continue
                    steps[port.node] += _card(graph, link, port, identity, service)
                    steps[port.node] += _steering(graph, port, identity, numa, card)
            continue
        here = {port.node in steps for port in link.ends}
        if here == {False}:
            continue
        if len(here) == 2:
            raise InputError(
                f"{link.ends[0]} and {link.ends[1]} are on two machines, which no "
                "virtual link joins: give them network cards"
            )
        later = max((port.node for port in link.ends), key=order.__getitem__)
        index = FIRST_INDEX + 2 * number
        steps[later] += _link(graph, link, index, identity, addresses)
        for port in link.ends:
            steps[later] += _steering(graph, port, identity, numa)
            if port == link.reached(graph.devices):
                steps[later] += _below(graph, port, index, identity, numa)
    return steps


def in_order(steps: Iterable[Step]) -> list[Step]:
    """The steps of several nodes, so that many of one kind follow each other: all namespaces, then
    all virtual links, then whatever needs both, as it was.
    """
    first = (namespaces.Namespace, namespaces.Link)
    return sorted(steps, key=lambda step: next(
        (place for place, kind in enumerate(first) if isinstance(step.resource, kind)), len(first)
    ))  # fmt: skip


def tap_devices(graph: Graph, node: str) -> dict[Port, str]:
    """What the tap devices of a virtual machine's ports are called; none of cards' ports.

    They are in its own namespace if it has one (`Graph.has_namespace`), and else with the taps.
    """
    own = graph.has_namespace(node)
    virtual = [port for port in graph.ports_of(node) if not graph.link(port).carded]
    return {
        port: f"tt-vm{number}" if own else graph.peer(port).name
        for number, port in enumerate(virtual, 1)
    }


def _node(graph: Graph, node: Node, identity: str) -> Iterator[Resource]:
    name = name_of(identity, node.name)
    if node.kind == "container":
        yield namespaces.Namespace(name, container=name)
    elif graph.has_namespace(node.name):
        yield namespaces.Namespace(name)


def _functions(graph: Graph) -> Iterator[Resource]:
    """As many virtual functions of each card as ports are."""
    every = [(dict(link.carded)[port], link.mtu) for port, link in graph.functions]
    for card in dict.fromkeys(card for card, _ in every):
        own = [mtu for other, mtu in every if other == card]
        yield VirtualFunctions(card, len(own), max(own))


def _outer(graph: Graph, port: Port) -> str:
    """The hardware address of a virtual function that is an outer port of the DuT: what the
    generator's packets have, as a card gives a function only what is addressed to it.
    """
    return DESTINATION_MAC if _is_entered(graph, port) else LEAVING_MAC


def _called(graph: Graph, link: Link, port: Port, identity: str) -> str:
    """What the network card that is a port is called before it is lent: a function by its link, as
    several cards have functions of one number.
    """
    if link.function(port) is None:
        return dict(link.carded)[port]
    return name_of(identity, f"v{graph.links.index(link)}{'ab'[link.ends.index(port)]}")


def _card(graph: Graph, link: Link, port: Port, identity: str, service: str) -> Iterator[Step]:
    node = graph.node(port.node)
    card = _called(graph, link, port, identity)
    namespace = name_of(identity, node.name)
    threads = node.placement.threads and _is_entered(graph, port)
    yield Step(Card(card, namespace, port.name, link.mtu, threads), port)
    if node.task == "timestamper":
        yield Step(CardInterrupts(namespace, port.name, service), port)


def _link(
    graph: Graph, link: Link, index: int, identity: str, addresses: Mapping[Port, Addresses]
) -> Iterator[Step]:
    """A virtual link, and the tap devices that go on from it into virtual machines."""
    guests = [port for port in link.ends if graph.node(port.node).kind == "guest"]
    upper = link.reached(graph.devices)
    if upper is not None:
        [far] = [port for port in link.ends if port != upper]
        below, mac = name_of(identity, BELOW), addresses[far].mac if far in addresses else ""
        yield Step(
            namespaces.Link(
                far.name,
                name_of(identity, far.node),
                index,
                _lower(index),
                below,
                index + BELOW_INDEX,
                link.mtu,
                mac,
            )
        )
        own = addresses[upper].mac if upper in addresses else ""
        yield Step(Reached(str(link.way), below, _lower(index), name_of(identity, upper.node),
                           upper.name, index + 1, link.mtu, own))  # fmt: skip
        return
    if all(graph.has_namespace(port.node) for port in link.ends):
        one, other = link.ends
        macs = [addresses[port].mac if port in addresses else "" for port in link.ends]
        yield Step(
            namespaces.Link(
                one.name, name_of(identity, one.node), index,
                other.name, name_of(identity, other.node), index + 1,
                link.mtu, macs[0], macs[1], link.queues,
            )
        )  # fmt: skip
        for port in guests:
            namespace, device = name_of(identity, port.node), tap_devices(graph, port.node)[port]
            yield Step(namespaces.TapDevice(device, namespace, link.mtu))
            yield Step(namespaces.Junction(namespace, port.name, device))
    else:
        for port in guests:
            beside = graph.peer(port)
            yield Step(namespaces.TapDevice(beside.name, name_of(identity, beside.node), link.mtu))


def _below(graph: Graph, port: Port, index: int, identity: str, numa: Numa) -> Iterator[Step]:
    """Where the work for packets begins that come in at a port which is reached by something else:
    where they come out of the link.
    """
    node = graph.node(port.node)
    cpus = cpus_of(node.placement, node.cpus, None, numa) if node.cpus else ()
    if cpus and _is_entered(graph, port):
        yield Step(receive_steering(name_of(identity, BELOW), _lower(index), cpus))


def _lower(index: int) -> str:
    """What the end of a link is called that something else lies upon."""
    return f"tt-l{index}"


def placed(graph: Graph, name: str, numa: Numa) -> Placed:
    """Where the packets are received that come into a node, and what belongs to its ports.

    Raises as `compile_graph` does.
    """
    node, cards = graph.node(name), graph.cards_behind(name)
    entered = graph.entered(name) if graph.has_namespace(name) else ()
    receiving = {
        port.name: cpus_of(node.placement, node.cpus, cards.get(port.name), numa)
        for port in entered
    }
    return Placed(node.cpus, cards, receiving)


def _check_cores(graph: Graph) -> None:
    """Raises `InputError` where `core` has too few cores.

    Each handler has a core of its own then, so that a line of nodes is not longer than there are
    cores; hardware-supported-containers, section IV-B.
    """
    taken: dict[int, str] = {}
    for node in graph.nodes:
        if node.placement.irq != CORE or node.kind == "guest":
            continue
        for cpu in node.cpus:
            if (other := taken.setdefault(cpu, node.name)) != node.name:
                raise InputError(
                    f"dut.irq: core has too few cores: {other} and {node.name} share CPU {cpu}: "
                    "give each its own, or choose node, none or a list of CPUs"
                )
        if node.cpus and (node.placement.queues or 0) > len(node.cpus):
            raise InputError(
                f"dut.irq: core has too few cores: {node.placement.queues} queues have an "
                f"interrupt each, and {node.name} has {len(node.cpus)} of dut.cpus: take fewer in "
                "dut.queues, or choose node, none or a list of CPUs"
            )


def _steering(
    graph: Graph, port: Port, identity: str, numa: Numa, card: str | None = None
) -> Iterator[Step]:
    """Where the work for packets is done that come in at a port, as far as its node has CPUs.

    The port is the end of a virtual link, or `card`.
    """
    node = graph.node(port.node)
    _require_default(node)
    if not node.cpus or not graph.has_namespace(node.name):
        return
    entered = _is_entered(graph, port)
    if card is None and not entered:
        return
    cpus = cpus_of(node.placement, node.cpus, card, numa)
    namespace, lent = name_of(identity, node.name), None if card is None else port
    if lent is not None:
        steps = _card_steering(namespace, port.name, node.placement, cpus)
        yield from (Step(resource, lent) for resource in steps)
    if entered and node.placement.threads:
        busy, cores = node.placement.napi == BUSY_POLL, list_cpus(cpus)
        if card is None:
            peer = graph.peer(port)
            ends = (name_of(identity, peer.node), peer.name)
            threads = PortThreads(namespace, port.name, cores, *ends, busy=busy)
        else:
            called = _called(graph, graph.link(port), port, identity)
            threads = PortThreads(namespace, port.name, cores, card=called, busy=busy)
        yield Step(threads, lent)
    elif entered and cpus:
        yield Step(receive_steering(namespace, port.name, cpus), lent)


def _require_default(node: Node) -> None:
    """Raises `InputError` for a virtual machine whose packets should be received elsewhere."""
    if node.kind == "guest" and node.placement != DEFAULT:
        raise InputError(
            "dut.irq, dut.napi, dut.queues: a virtual machine numbers its own CPUs, and receives "
            "on those of dut.cpus: leave them out, write irq: core and napi: softirq at that node, "
            "or take another dut.platform"
        )


def _card_steering(
    namespace: str, port: str, placement: Placement, cpus: Sequence[int]
) -> Iterator[Resource]:
    """The queues of a card, and where it interrupts and who sends through it."""
    if placement.queues is not None:
        yield CardQueues(namespace, port, placement.queues)
    if not cpus:
        return
    yield CardInterrupts(namespace, port, list_cpus(cpus), apart=placement.irq == CORE)
    # A card with one queue has nothing to choose from, and no such file.
    if placement.queues is not None and placement.queues > 1:
        for queue, senders in enumerate(send_queues(cpus, placement.queues)):
            yield KernelValue(
                [f"/sys/class/net/{port}/queues/tx-{queue}/xps_cpus"],
                cpu_mask(senders),
                "mask",
                namespace,
                hint=f"cannot let only CPUs {list_cpus(senders)} send through queue {queue} of "
                f"{port}: this needs a kernel with CONFIG_XPS and so many queues of both kinds",
            )


def _is_entered(graph: Graph, port: Port) -> bool:
    return port in graph.entered(port.node)


def receive_steering(namespace: str, port: str, cpus: Iterable[int]) -> KernelValue:
    """The receive work of a port, on `cpus`."""
    mask = cpu_mask(cpus)
    return KernelValue(
        [f"/sys/class/net/{port}/queues/rx-*/rps_cpus"],
        mask,
        "mask",
        namespace,
        hint=f"cannot steer the receive work of {port} to CPU mask {mask}: this needs a kernel "
        "with CONFIG_RPS and these CPUs online",
    )
