"""The addresses of the ports between nodes of a DuT, and how flows pass these: pure functions.

Numbers follow the order of the graph, so that the same graph has the same addresses each time.
Packets need no protocol that resolves any of them. The DuT's outer ports are not numbered: the
generator chose the address that its packets have, and nobody reads that of packets at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address
from itertools import pairwise

from tailtap.base.errors import InputError
from tailtap.host.net.virtual_functions import FIRST_VLAN, LAST_VLAN
from tailtap.lab.topology.graph import Graph, Link, Port
from tailtap.records.run import Function

DESTINATION_MAC = "02:74:74:00:00:02"
"""The hardware address that the generator's packets have, unless it is told another."""
LEAVING_MAC = "02:74:74:00:00:04"
"""That of a virtual function by which packets leave the DuT: a card sends nothing out that has the
address of one of its functions."""
NEXT_HOP_MAC = "02:74:74:00:00:03"
"""That of the neighbour behind the DuT."""
_FIRST_V4, _FIRST_V6 = IPv4Address("169.254.0.0"), IPv6Address("fe80::")
"""Link-local (RFC 3927, RFC 4291): no flow can go there."""
BEHIND = {4: "169.254.116.116", 6: "fe80::7474"}
"""The neighbour behind the DuT, by version of IP."""
MOST_LINKS = 0x3000
"""Links that have addresses: all of them are below those of `BEHIND`."""


@dataclass(frozen=True)
class Addresses:
    """Those of one port."""

    mac: str
    v4: IPv4Address
    v6: IPv6Address

    def ip(self, version: int) -> str:
        return str(self.v4 if version == 4 else self.v6)


@dataclass(frozen=True)
class Way:
    """How packets of a flow pass a node."""

    flow: str
    entered: Port
    left: Port
    mac: str | None
    """The hardware address that the port needs at which they come in; None for any."""
    next: Addresses | None
    """Those of the port that they are sent on to; None behind the last node that routes."""


def numbered(graph: Graph) -> dict[Port, Addresses]:
    """The addresses of every port between two nodes of the DuT.

    Hardware addresses are 02:74:NN:NN:PP:PP, by node and port. The two ends of a link are
    neighbours in the link-local range. Raises `InputError` for more links than that has room for.
    """
    if len(graph.links) > MOST_LINKS:
        raise InputError(
            f"{len(graph.links)} links are too many: there are addresses for {MOST_LINKS}"
        )
    nodes = {node.name: number for number, node in enumerate(graph.nodes, 1)}
    inner = graph.devices
    ports = dict.fromkeys(nodes, 0)
    found: dict[Port, Addresses] = {}
    for number, link in enumerate(graph.links, 1):
        for end, port in enumerate(link.ends):
            ports[port.node] += 1
            if inner.issuperset(one.node for one in link.ends):
                place = nodes[port.node].to_bytes(2, "big") + ports[port.node].to_bytes(2, "big")
                offset = 2 * number + end
                mac = f"02:74:{place.hex(':')}"
                found[port] = Addresses(mac, _FIRST_V4 + offset, _FIRST_V6 + offset)
    return found


def ways(graph: Graph) -> dict[str, list[Way]]:
    """How the flows pass each node of the DuT, in their order. Raises as `numbered` does.

    Only nodes that route are addressed: the generator addresses the first of them, and each sends
    on to the next one, whatever lies in between. A port that is the first one for one flow and a
    later one for another has the generator's address for both.
    """
    addresses = numbered(graph)
    duts = {node.name: node for node in graph.nodes if node.task == "dut"}
    passed = {
        flow.name: [(entered, left) for entered, left in pairwise(flow.path)
                    if entered.node == left.node and entered.node in duts]
        for flow in graph.flows
    }  # fmt: skip
    routers = {
        flow: [entered for entered, _ in pairs if duts[entered.node].routes]
        for flow, pairs in passed.items()
    }
    for port in {port for entered in routers.values() for port in entered[:1]}:
        if port in addresses:
            addresses[port] = replace(addresses[port], mac=DESTINATION_MAC)
    found: dict[str, list[Way]] = {}
    for flow, pairs in passed.items():
        for place, (entered, left) in enumerate(pairs, 1):
            first = entered in routers[flow][:1]
            mac = DESTINATION_MAC if first else None
            if not first and entered in addresses:
                mac = addresses[entered].mac
            behind = (port for port, _ in pairs[place:] if port in routers[flow])
            onward = next((addresses[port] for port in behind), None)
            found.setdefault(entered.node, []).append(Way(flow, entered, left, mac, onward))
    return found


def over_channels(graph: Graph, cards: tuple[str, str]) -> Graph:
    """The same graph with every link between two nodes of the DuT over the cable between `cards`.

    Raises `InputError` for more links than there are VLANs.
    """
    return replace(graph, links=tuple(_links(graph, cards)))


def by_functions(graph: Graph) -> Graph:
    """The same graph with a virtual function of each of the DuT's cards in the card's place."""

    def function(link: Link, port: Port) -> Function | None:
        whole = port.node in graph.devices and link.function(port) is None
        return Function(card=dict(link.carded)[port], function=0) if whole else link.function(port)

    return replace(graph, links=tuple(
        replace(link, functions=(function(link, link.ends[0]), function(link, link.ends[1])))
        if link.cards is not None else link
        for link in graph.links
    ))  # fmt: skip


def over_ways(graph: Graph, way: str) -> Graph:
    """The same graph with every virtual link to a node of the DuT by a `way` of `Reached`."""
    return replace(graph, links=tuple(
        replace(link, way=way)
        if not link.carded and any(port.node in graph.devices for port in link.ends) else link
        for link in graph.links
    ))  # fmt: skip


def _links(graph: Graph, cards: tuple[str, str]) -> Iterator[Link]:
    inner = graph.devices
    number = 0
    for link in graph.links:
        if not inner.issuperset(port.node for port in link.ends):
            yield link
            continue
        vlan = FIRST_VLAN + number
        if vlan > LAST_VLAN:
            raise InputError(
                f"dut.over: one cable has {LAST_VLAN - FIRST_VLAN + 1} VLANs for links, and there "
                "are more: leave it out"
            )
        one, other = cards if number % 2 == 0 else cards[::-1]
        ends = (
            Function(card=one, function=number),
            Function(card=other, function=number),
        )
        yield replace(link, cards=(one, other), functions=ends, vlan=vlan)
        number += 1
