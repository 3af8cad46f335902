"""A topology as data: nodes, ports, links, and the flows through them with their tap points."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal, NamedTuple, get_args

from tailtap.base.errors import InputError
from tailtap.lab.topology.placement import DEFAULT, Placement
from tailtap.records import run

Task = Literal["generator", "timestamper", "dut"]
"""What a node is there for: the role whose station it is on."""
TASKS: tuple[Task, ...] = get_args(Task)

NodeKind = Literal["namespace", "container", "guest"]
"""What holds the ports of a node: a network namespace, the one of a container, or a virtual
machine."""

INGRESS, EGRESS = "ingress", "egress"
"""What the captures before and behind the DuT are called."""

LONGEST_NAME = 15
"""Characters of a port's name that the kernel keeps (IFNAMSIZ without the final zero)."""


@dataclass(frozen=True, order=True)
class Port:
    """One end of a link."""

    node: str
    name: str

    def __str__(self) -> str:
        return f"{self.node}:{self.name}"


@dataclass(frozen=True)
class Node:
    """What has ports."""

    name: str
    task: Task
    kind: NodeKind = "namespace"
    cpus: tuple[int, ...] = ()
    """The CPUs that it works on. Empty: whoever its packets come from works for it."""
    placement: Placement = DEFAULT
    """Where the packets that come in are received, as far as it has CPUs."""
    routes: bool = True
    """Whether packets are addressed to it, as to a router; else they pass it as they are."""

    def record(self) -> run.Node:
        return run.Node(
            name=self.name,
            task=self.task,
            kind=self.kind,
            cpus=list(self.cpus),
            placement=self.placement.record() if self.cpus else None,
        )


@dataclass(frozen=True)
class Splitter:
    """Where a cable's packets come to as well: a passive optical splitter, or a mirror port."""

    port: Port
    card: str
    """The network card that is this port, by its name on its machine."""


@dataclass(frozen=True)
class Link:
    """Two ports that are joined: by a virtual link, or by a cable between two network cards."""

    ends: tuple[Port, Port]
    mtu: int
    """In bytes."""
    cards: tuple[str, str] | None = None
    """The network cards that are its ends, or whose functions are, by their names on their
    machines; None for a virtual link."""
    splitters: tuple[Splitter, ...] = ()
    """Who see what its first end sends to its second one, in the order of the way. Only cables have
    any."""
    functions: tuple[run.Function | None, run.Function | None] = (None, None)
    """The virtual functions that are its ends; None for an end that is the card itself."""
    vlan: int | None = None
    """Its VLAN on a cable that it shares with other links; None where it has the cable alone."""
    queues: int = 1
    """Of each end, where it is a virtual link."""
    way: str | None = None
    """By what the last of its ends is reached; None where that is the end of the link itself."""

    def reached(self, nodes: Collection[str]) -> Port | None:
        """Its end that is reached by `way`, the last one in these nodes; None without a way."""
        inner = [port for port in self.ends if port.node in nodes]
        return inner[-1] if self.way is not None and inner else None

    @property
    def ports(self) -> tuple[Port, ...]:
        """Its ends, and the ports of its splitters."""
        return (*self.ends, *(one.port for one in self.splitters))

    def function(self, port: Port) -> run.Function | None:
        """The virtual function that a port is; None for one that is something else."""
        return dict(zip(self.ends, self.functions, strict=True)).get(port)

    @property
    def carded(self) -> tuple[tuple[Port, str], ...]:
        """Its ports that are network cards, or functions of these, with the cards."""
        split = ((one.port, one.card) for one in self.splitters)
        return (*zip(self.ends, self.cards or (), strict=False), *split)

    def record(self) -> run.Link:
        seen = [run.Splitter(port=str(one.port), card=one.card) for one in self.splitters]
        return run.Link(
            ends=[str(port) for port in self.ends],
            mtu=self.mtu,
            cards=None if self.cards is None else list(self.cards),
            functions=[end for end in self.functions if end is not None] or None,
            vlan=self.vlan,
            splitter=seen[0] if seen else None,
            splitter_behind=seen[1] if len(seen) > 1 else None,
            way=self.way,
        )


class TapPoint(NamedTuple):
    """A port at which the packets of a flow are stamped."""

    name: str
    """What its capture is called; within the DuT like the node that packets enter there."""
    port: Port
    before: str | None
    """The node of the DuT that packets enter next; None behind the last one."""
    received: bool = False
    """Whether packets are stamped as this node receives them, not as they are handed over to it."""


def _received(port: Port) -> TapPoint:
    return TapPoint(f"{port.node}.received", port, port.node, received=True)


@dataclass(frozen=True)
class Flow:
    """Packets of one generator: the ports that they pass, and where they are stamped."""

    name: str
    path: tuple[Port, ...]
    """From the generator's port to the one that absorbs them; a splitter's port stands between the
    ends of its cable. Of requests it goes back the same way, so that each port is there twice."""
    stamped: tuple[Port, ...]
    """The tap points, in the order of the path: the first is before the DuT, the last after it, and
    others are where packets enter a node of the DuT."""
    queues: bool = False
    """Whether they are stamped as well as each node receives them, the first one included."""

    @property
    def generator(self) -> Port:
        return self.path[0]

    @property
    def ingress(self) -> Port:
        """The port at which they are stamped before the DuT."""
        return self.stamped[0]

    @property
    def egress(self) -> Port:
        """The port at which they are stamped after it."""
        return self.stamped[-1]

    @property
    def points(self) -> list[TapPoint]:
        within: list[TapPoint] = []
        if self.queues and self.passed:
            within.append(_received(self.path[self.path.index(self.onward) + 1]))
        for port in self.stamped[1:-1]:
            within.append(TapPoint(port.node, port, port.node))
            if self.queues:
                within.append(_received(port))
        first = TapPoint(INGRESS, self.ingress, next(iter(self.passed), None))
        return [first, *within, TapPoint(EGRESS, self.egress, None)]

    @property
    def answered(self) -> bool:
        """Whether they are requests: the path goes on with the answers, back to the generator."""
        return self.path[0] == self.path[-1]

    @property
    def passed(self) -> list[str]:
        behind = len(self.path) - self.path[::-1].index(self.egress)
        within = self.path[self.path.index(self.ingress) : behind]
        nodes = dict.fromkeys(port.node for port in within)
        taps = (self.ingress.node, self.egress.node)
        return [node for node in nodes if node not in taps]

    def within(self, node: str) -> Iterator[tuple[Port, Port]]:
        return ((entered, left) for entered, left in pairwise(self.path)
                if entered.node == left.node == node)  # fmt: skip

    @property
    def onward(self) -> Port:
        """The port through which they leave the first tap for the DuT."""
        return self.path[self.path.index(self.ingress) + 1]

    def record(self) -> run.Flow:
        path, stamped = ([str(port) for port in ports] for ports in (self.path, self.stamped))
        return run.Flow(name=self.name, path=path, stamped=stamped)


@dataclass(frozen=True)
class Graph:
    """Nodes, the links between their ports, and the flows through both."""

    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    flows: tuple[Flow, ...]

    def __post_init__(self) -> None:
        """Raises `InputError` for a graph that cannot be: it names the node, port or flow."""
        names = [node.name for node in self.nodes]
        _once(names, "node")
        _once(map(str, self.ports), "port")
        _once((flow.name for flow in self.flows), "flow")
        for port in self.ports:
            if port.node not in names:
                raise InputError(f"port {port} belongs to no node: there are {', '.join(names)}")
            if not 0 < len(port.name) <= LONGEST_NAME:
                raise InputError(
                    f"port {port}: a name has 1 to {LONGEST_NAME} characters, as in the kernel"
                )
        for flow in self.flows:
            self._check(flow)

    @property
    def ports(self) -> Iterator[Port]:
        return (port for link in self.links for port in link.ports)

    def node(self, name: str) -> Node:
        """The node of this name. Raises `KeyError`."""
        return {node.name: node for node in self.nodes}[name]

    def flow(self, name: str) -> Flow:
        """The flow of this name. Raises `KeyError`."""
        return {flow.name: flow for flow in self.flows}[name]

    def peer(self, port: Port) -> Port:
        """The port at the other end of a port's link. Raises `KeyError`."""
        return self._peers[port]

    def link(self, port: Port) -> Link:
        """The link that a port belongs to. Raises `KeyError`."""
        return self._link_of[port]

    def cards_of(self, node: str) -> dict[str, str]:
        """The network cards that are ports of a node, by the names of these ports."""
        own = {port.name for port, _ in self.functions if port.node == node}
        return {port: card for port, card in self.cards_behind(node).items() if port not in own}

    def cards_behind(self, node: str) -> dict[str, str]:
        """The network cards that are ports of a node, or whose functions are."""
        return self._cards_of.get(node, {})

    @property
    def cards(self) -> list[str]:
        """All network cards, each once, in the order of the links."""
        return list(dict.fromkeys(card for link in self.links for _, card in link.carded))

    @property
    def devices(self) -> set[str]:
        return {node.name for node in self.nodes if node.task == "dut"}

    @property
    def channels(self) -> list[Link]:
        """The links that share a cable, in their order."""
        return [link for link in self.links if link.vlan is not None]

    @cached_property
    def functions(self) -> Sequence[tuple[Port, Link]]:
        """The ports that are virtual functions, with their links, in the order of these."""
        return [
            (port, link)
            for link in self.links
            for port, function in zip(link.ends, link.functions, strict=True)
            if function is not None
        ]

    def ports_of(self, node: str) -> list[Port]:
        return [port for port in self.ports if port.node == node]

    def has_namespace(self, node: str) -> bool:
        """Whether the ports of a node, or what they are joined to, are in a namespace of its own.

        Tap devices of a virtual machine whose ports all lead to the taps are among these. Those of
        another one are with it, where the links to other nodes end.
        """
        if self.node(node).kind != "guest":
            return True
        ports = [port for link in self.links if not link.carded for port in link.ends]
        beside = [self.node(self.peer(port).node) for port in ports if port.node == node]
        return any(other.task == "dut" for other in beside)

    def entered(self, node: str) -> list[Port]:
        """The ports through which a flow enters a node, each once, in the order of the flows."""
        return self._entered.get(node, [])

    def passes(self, node: str) -> list[tuple[Port, Port]]:
        """The ports between which flows pass a node, each pair once, in the order of the flows."""
        return list(dict.fromkeys(way for flow in self.flows for way in flow.within(node)))

    @cached_property
    def _peers(self) -> Mapping[Port, Port]:
        every = [link.ends for link in self.links]
        return {**dict(every), **{other: one for one, other in every}}

    @cached_property
    def _cards_of(self) -> Mapping[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}
        for link in self.links:
            for port, card in link.carded:
                found.setdefault(port.node, {})[port.name] = card
        return found

    @cached_property
    def _link_of(self) -> Mapping[Port, Link]:
        return {port: link for link in self.links for port in link.ports}

    @cached_property
    def _entered(self) -> Mapping[str, list[Port]]:
        found: dict[str, dict[Port, None]] = {}
        for flow in self.flows:
            for before, after in pairwise(flow.path):
                if after.node != before.node:
                    found.setdefault(after.node, {})[after] = None
        return {node: list(ports) for node, ports in found.items()}

    def _check(self, flow: Flow) -> None:
        """Raises `InputError` when a flow takes a way that is not there."""
        known = set(self.ports)
        for port in (*flow.path, *flow.stamped):
            if port not in known:
                raise InputError(f"flow {flow.name}: there is no port {port}")
        for before, after in pairwise(flow.path):
            if before.node != after.node and self._link_of[before] is not self._link_of[after]:
                raise InputError(f"flow {flow.name}: no link joins {before} and {after}")
        places = [flow.path.index(port) for port in flow.stamped if port in flow.path]
        if len(places) != len(flow.stamped) or len(places) < 2 or places != sorted(set(places)):
            raise InputError(
                f"flow {flow.name}: its tap points are two or more ports of its path, in order"
            )


def _once(names: Iterable[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"{what} {name} is there twice: give each a name of its own")
        seen.add(name)
