"""The smallest graph, one DuT between two links, and a line of several.

```
node gen                       node tap                        node dut
    tt-gen ═══════════════ tt-a0 ─tap ingress─▶ tt-a1 ══════════ tt-in
    tt-rev ═══════════════ tt-b1       tt-b0 ◀─tap egress─          │ forwarder
                                         ╚═════════════════════ tt-out
```

Traffic in both directions has a second generator, on `tt-rev`. Its packets pass the same pieces
the other way: they are stamped as they come to `tt-b1`, go on through `tt-b0` into the DuT's egress
port, and are stamped and absorbed as they come back to `tt-a1`.

Network cards can be the ends of the two links beside the DuT, with cables between them. They keep
the ports' names for as long as they are lent to the lab.

A timestamper behind splitters is in nobody's way. The DuT's ports are joined with the generator's,
which absorbs what comes back, and the splitters' copies end at the timestamper:

```
node gen                                        node dut
    tt-gen ═════════════════╤══════════════════════ tt-in
    tt-back ════════════════│══╤═══════════════════ tt-out
                node tap  tt-a0 tt-b0
```

In a line these are the ports of its first and its last node. Without a DuT somebody has joined the
two plugs that are in its cards otherwise: `tt-gen` and `tt-back` are the ends of one cable.

Without a DuT `tt-a1` and `tt-b0` are the two ends of one link. A line has nodes `dut1`, `dut2`, …
instead of `dut`, and a link from the `tt-out` of each to the `tt-in` of the next. Where each hop is
looked at, packets are stamped as well at the port by which they enter each node but the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import msgspec

from tailtap.base.errors import InputError
from tailtap.lab.generators.flows import CLIENT, SERVER, Version
from tailtap.lab.topology.graph import Flow, Graph, Link, Node, NodeKind, Port, Splitter
from tailtap.lab.topology.numbering import DESTINATION_MAC
from tailtap.lab.topology.placement import DEFAULT, Placement
from tailtap.remote import Host

GENERATOR, TAPS, DUT = "gen", "tap", "dut"
"""The nodes' names, where the DuT is one."""
DUT_INGRESS, DUT_EGRESS = "tt-in", "tt-out"
TO_DUT, FROM_DUT = "tt-a1", "tt-b0"
"""The taps' ports at the other ends of the DuT's links."""
FORWARD, REVERSE = "forward", "reverse"
"""The flows' names: that from the DuT's ingress port to its egress port, and the other one."""

ETHERNET_OVERHEAD = 18
"""Bytes of a frame that the MTU does not count: the Ethernet header and the check sequence."""
DEFAULT_MTU = 1500

_BOTH_WAYS = "a splitter copies one direction of a cable: leave out traffic.bidirectional"
_SENDING, _SENDING_BACK = Port(GENERATOR, "tt-gen"), Port(GENERATOR, "tt-rev")
_BACK = Port(GENERATOR, "tt-back")
_FIRST_TAP, _FIRST_TAP_BACK = Port(TAPS, "tt-a0"), Port(TAPS, "tt-b1")
_TO, _FROM = Port(TAPS, TO_DUT), Port(TAPS, FROM_DUT)


@dataclass(frozen=True)
class Cables:
    """Two cables between network cards, in front of the DuT and behind it."""

    dut: tuple[str, str]
    """The DuT's ingress and egress port."""
    tap: tuple[str, str]
    """What is at the other ends, or behind the splitters of both."""
    generator: tuple[str, str] | None = None
    """What is at the other ends where cables have splitters: what sends, and what absorbs."""

    @property
    def tap_kind(self) -> str:
        return "inline" if self.generator is None else "passive"

    def as_json(self) -> dict[str, list[str] | None]:
        """The cards by the role that they belong to; `of` reads them again."""
        return {name: None if cards is None else list(cards) for name, cards in vars(self).items()}

    @classmethod
    def of(cls, content: Mapping[str, Sequence[str] | None]) -> Cables:
        return msgspec.convert(content, cls)


def smallest(
    kind: NodeKind | None = None,
    cpus: Iterable[int] = (),
    *,
    frame_size: int = 0,
    both_ways: bool = False,
    cables: Cables | None = None,
    placement: Placement = DEFAULT,
    length: int = 1,
    hops: bool = False,
    queues: bool = False,
) -> Graph:
    """The graph of one DuT whose ports are in a `kind` of node and whose work is on `cpus`.

    With a `length` it is a line of as many, which share the CPUs out if there is one for each, and
    else all work on all of them.

    Its packets are received as `placement` says. Without a kind there is no DuT. Links carry frames
    of `frame_size` bytes, check sequence included. With `both_ways` a second generator sends
    through the DuT from behind. With `hops` packets are also stamped where they enter each node
    of the line but the first: there the node before handed them over. With `queues` they are
    stamped as well as nodes receive them (`Flow.queues`).
    """
    duts: list[Node] = []
    if kind is not None:
        shares = zip(dut_names(length), share_out(tuple(cpus), length), strict=True)
        duts = [Node(name, "dut", kind, own, placement) for name, own in shares]
    return line(
        duts, frame_size=frame_size, both_ways=both_ways, cables=cables, hops=hops, queues=queues
    )


def line(
    duts: Sequence[Node],
    *,
    frame_size: int = 0,
    both_ways: bool = False,
    cables: Cables | None = None,
    hops: bool = False,
    queues: bool = False,
) -> Graph:
    """The graph of nodes that packets pass one after the other; the rest is as in `smallest`."""
    mtu = max(DEFAULT_MTU, frame_size - ETHERNET_OVERHEAD)
    nodes = [Node(GENERATOR, "generator"), Node(TAPS, "timestamper"), *duts]
    between = tuple(Port(one.name, port) for one in duts for port in (DUT_INGRESS, DUT_EGRESS))
    inner = [Link(ends, mtu) for ends in zip(between[1::2], between[2::2], strict=False)]
    if cables is not None and cables.generator is not None:
        if both_ways:
            raise InputError(_BOTH_WAYS)
        way = (_SENDING, _FIRST_TAP, *between, _FROM, _BACK)
        beside_it = split(way, mtu, cables, cables.generator)
        flow = Flow(FORWARD, way, (_FIRST_TAP, _FROM))
        return Graph(tuple(nodes), (beside_it[0], *inner, *beside_it[1:]), (flow,))
    links = [Link((_SENDING, _FIRST_TAP), mtu)]
    if both_ways:
        links.append(Link((_SENDING_BACK, _FIRST_TAP_BACK), mtu))
    if not duts:
        links.append(Link((_TO, _FROM), mtu))
    else:
        first, last = beside((_TO, between[0]), (between[-1], _FROM), mtu, cables)
        links += (first, *inner, last)
    way = (_SENDING, _FIRST_TAP, _TO, *between, _FROM)
    flows = [Flow(FORWARD, way, (_FIRST_TAP, *(between[2::2] if hops else ()), _FROM), queues)]
    if both_ways:
        inside_out = between[::-1]
        back = (_SENDING_BACK, _FIRST_TAP_BACK, _FROM, *inside_out, _TO)
        within = inside_out[2::2] if hops else ()
        flows.append(Flow(REVERSE, back, (_FIRST_TAP_BACK, *within, _TO), queues))
    return Graph(tuple(nodes), tuple(links), tuple(flows))


def with_queues(graph: Graph, senders: Mapping[str, int]) -> Graph:
    """The same graph, with a queue for each thread that sends a flow into a virtual link."""
    wanted = {graph.flow(name).generator: count for name, count in senders.items()}
    links = [
        replace(link, queues=max(wanted.get(port, link.queues) for port in link.ends))
        for link in graph.links
    ]
    return replace(graph, links=tuple(links))


def beside(
    entering: tuple[Port, Port], leaving: tuple[Port, Port], mtu: int, cables: Cables | None
) -> tuple[Link, Link]:
    """The links before and behind the DuT; with `cables`, cards are their ends."""
    before = after = None
    if cables is not None:
        before, after = (cables.tap[0], cables.dut[0]), (cables.dut[1], cables.tap[1])
    return Link(entering, mtu, before), Link(leaving, mtu, after)


def split(
    way: Sequence[Port], mtu: int, cables: Cables, sender: tuple[str, str]
) -> tuple[Link, ...]:
    """The cables with splitters, to the port by which packets come to the DuT and from its last.
    Where the way has no DuT the plugs of both are joined, and they are one cable.

    `way` is the whole path of a flow, whose second port and last but one are the splitters'.
    """
    start, first_tap, *within, last_tap, back = way
    before, behind = Splitter(first_tap, cables.tap[0]), Splitter(last_tap, cables.tap[1])
    if not within:
        return (Link((start, back), mtu, sender, (before, behind)),)
    return (
        Link((start, within[0]), mtu, (sender[0], cables.dut[0]), (before,)),
        Link((within[-1], back), mtu, (cables.dut[1], sender[1]), (behind,)),
    )


def dut_names(length: int) -> list[str]:
    """What the nodes of a line are called, in the order in which packets pass them."""
    return [DUT] if length == 1 else [f"{DUT}{number}" for number in range(1, length + 1)]


def share_out(cpus: tuple[int, ...], length: int) -> list[tuple[int, ...]]:
    """The CPUs of each node of a line: as many of its own as there are, or all of them."""
    if len(cpus) < length:
        return [cpus] * length
    return [
        cpus[place * len(cpus) // length : (place + 1) * len(cpus) // length]
        for place in range(length)
    ]


LONGEST_NODE = 12
"""Characters of a node's name, which names of ports have in them."""


def network(
    duts: Sequence[Node],
    paths: Mapping[str, Sequence[str]],
    *,
    frame_size: int = 0,
    cables: Sequence[Cables] = (),
    hops: bool = False,
    queues: bool = False,
) -> Graph:
    """The graph of `duts` in which flows pass the nodes of their `paths`, first to last.

    A flow that passes no node goes from tap to tap. Links carry frames of `frame_size` bytes, check
    sequence included. With `cables`, two for each flow, cards are the ports of its first and last
    node. With `hops` packets are also stamped where they enter each node but the first
    of their path, with `queues` as well as nodes receive them (`Flow.queues`). Raises `InputError`
    for a graph that cannot be.
    """
    mtu = max(DEFAULT_MTU, frame_size - ETHERNET_OVERHEAD)
    sending: list[Link] = []
    ends: list[Link] = []
    flows: list[Flow] = []
    inner: dict[frozenset[str], tuple[Port, Port]] = {}
    for pair in (pair for path in paths.values() for pair in pairwise(path)):
        inner.setdefault(frozenset(pair), _ends(*pair))
    for number, (name, path) in enumerate(paths.items(), 1):
        start, first_tap = Port(GENERATOR, f"tt-gen{number}"), Port(TAPS, f"tt-a0-{number}")
        onward, last_tap = Port(TAPS, f"tt-a1-{number}"), Port(TAPS, f"tt-b0-{number}")
        within: list[Port] = []
        if path:
            entry, leaving = Port(path[0], f"tt-in{number}"), Port(path[-1], f"tt-out{number}")
            steps = (port for pair in pairwise(path) for port in _ends(*pair))
            within = [entry, *steps, leaving]
        stamped = (first_tap, *(within[2::2] if hops else ()), last_tap)
        own = cables[number - 1] if cables else None
        if own is not None and own.generator is not None:
            back = Port(GENERATOR, f"tt-back{number}")
            way = (start, first_tap, *within, last_tap, back)
            ends += split(way, mtu, own, own.generator)
        else:
            way = (start, first_tap, onward, *within, last_tap)
            sending.append(Link((start, first_tap), mtu))
            if path:
                ends += beside((onward, entry), (leaving, last_tap), mtu, own)
            else:
                ends.append(Link((onward, last_tap), mtu))
        flows.append(Flow(name, way, stamped, queues))
    between = [Link(joined, mtu) for joined in inner.values()]
    nodes = (Node(GENERATOR, "generator"), Node(TAPS, "timestamper"), *duts)
    return Graph(nodes, (*sending, *ends, *between), tuple(flows))


def _ends(one: str, other: str) -> tuple[Port, Port]:
    """The ends of the link between two nodes."""
    return Port(one, f"to-{other}"), Port(other, f"to-{one}")


CLIENT_MAC = "02:74:74:00:00:01"
"""The hardware address of the client's port, which tailtap's own generator has as well."""
_PREFIX: Mapping[Version, int] = {4: 24, 6: 64}

# No neighbour discovery and nobody told of a router: the link carries requests and answers alone.
_ADDRESS = """port=$1; base=/proc/sys/net/ipv6/conf/$port
if [ "$7" = 6 ]; then
    echo 0 > $base/accept_dad; echo 1 > $base/addr_gen_mode
    echo 0 > $base/accept_ra; echo 0 > $base/disable_ipv6
fi
ip link set dev lo up; ip link set dev $port address $2
ip -$7 address replace $3/$4 dev $port
ip -$7 neigh replace $5 lladdr $6 dev $port nud permanent"""


def served(dut: Node, clients: Sequence[int], *, frame_size: int = 0) -> Graph:
    """The graph of one DuT that answers clients, which are on the CPUs `clients`.

    Links carry frames of 1500 bytes without their headers, or of `frame_size` bytes with them.
    """
    mtu = max(DEFAULT_MTU, frame_size - ETHERNET_OVERHEAD)
    client, first = Port(GENERATOR, "tt-gen"), Port(TAPS, "tt-a0")
    last, port = Port(TAPS, TO_DUT), Port(dut.name, DUT_INGRESS)
    sender = Node(GENERATOR, "generator", cpus=tuple(clients), placement=Placement(tuple(clients)))
    links = (Link((client, first), mtu), Link((last, port), mtu))
    way = (client, first, last, port, port, last, first, client)
    return Graph(
        (sender, Node(TAPS, "timestamper"), dut), links, (Flow(FORWARD, way, (first, last)),)
    )


def address_client(host: Host, port: str, version: Version) -> None:
    """Give the client's port its address. Raises `MachineError`."""
    _address(host, port, version, (CLIENT_MAC, CLIENT), (DESTINATION_MAC, SERVER))


def address_server(host: Host, port: str, version: Version) -> None:
    """Give the DuT's port its address. Raises `MachineError`."""
    _address(host, port, version, (DESTINATION_MAC, SERVER), (CLIENT_MAC, CLIENT))


def _address(
    host: Host,
    port: str,
    version: Version,
    own: tuple[str, Mapping[Version, str]],
    other: tuple[str, Mapping[Version, str]],
) -> None:
    words = [port, own[0], own[1][version], str(_PREFIX[version]), other[1][version], other[0]]
    host.run(["sh", "-ec", _ADDRESS, "address", *words, str(version)])
