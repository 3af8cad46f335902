"""`dut.links`, `dut.flows`, `dut.route_by`, `dut.over`: a network of nodes, what its links are
made of, and the flows through it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, Discriminator, Field, Tag

from tailtap.base.document import KeyPath, Misfit, require_fit
from tailtap.base.errors import Findings, did_you_mean
from tailtap.base.schema import AS_WRITTEN, Matching, Ports, Strict, Written, name_words
from tailtap.experiment.fields import as_misfit
from tailtap.experiment.line import (
    ENDS,
    VETH,
    Member,
    able,
    check_members,
    check_routers,
    kinds_of,
)
from tailtap.host.net import pci
from tailtap.host.net.cards import CardState
from tailtap.host.net.namespaces import require_way
from tailtap.host.net.virtual_functions import Ability
from tailtap.lab.forwarders import FORWARDERS, Serves
from tailtap.lab.generators.flows import Address, Flows, Ranges, numbered
from tailtap.lab.generators.model import Traffic
from tailtap.lab.platforms import PLATFORMS
from tailtap.lab.topology.graph import Graph, Port
from tailtap.lab.topology.graphs import FORWARD, LONGEST_NODE
from tailtap.lab.topology.numbering import Way, by_functions, over_channels, over_ways, ways

if TYPE_CHECKING:
    from tailtap.experiment.dut import Dut
    from tailtap.experiment.model import Experiment


class Sriov(Strict):
    """Virtual functions of two network cards that a cable joins."""

    sriov: Ports = Field(
        description="Two network cards of the DuT's machine that a cable joins. Each link between "
        "nodes has a virtual function of both, and a VLAN of its own.",
        examples=[["enp1s0f0", "enp2s0f0"]],
    )


def _form(value: object) -> str:
    return "mapping" if isinstance(value, dict | Sriov) else "word"


Over: TypeAlias = Annotated[
    Annotated[Literal["veth", "macvlan", "bridge", "netkit"], Tag("word")]
    | Annotated[Sriov, Tag("mapping")],
    Discriminator(_form),
    Written("`veth`, `macvlan`, `bridge`, `netkit`, or `{sriov: [card, card]}`"),
]


def check_over(over: Sriov | str, taps: str, graph: Graph) -> None:
    """Raises `Misfit` unless packets can come through virtual functions, where these are asked."""
    if isinstance(over, str):
        _check_way(over, taps, graph)
        return
    if over.sriov[0] == over.sriov[1]:
        raise Misfit(
            ("dut", "over", "sriov"),
            "packets between functions of one card pass no cable: name two cards that one joins",
        )
    if graph.channels and taps != ENDS:
        raise Misfit(
            ("dut", "taps"),
            "a packet that comes from a cable is received long after it was handed over, and "
            "nothing tells when that was: choose taps: ends, or leave dut.over out",
            [("dut", "over")],
        )
    for port in (port for link in graph.channels for port in link.ends):
        node = graph.node(port.node)
        if not node.routes:
            able = " or ".join(name for name, row in FORWARDERS.working() if row.routes)
            raise Misfit(
                ("dut", "over"),
                "a network card gives a virtual function only what is addressed to it, and "
                f"{node.name} is no router: make {able} its forwarder, or leave dut.over out",
                [("dut", "forwarder"), ("dut", "nodes")],
            )


def cabled_twice(over: Sriov | str, outer: Iterable[str]) -> str:
    """What is wrong with a card of `over` that is one of `outer`, too: those with the cables before
    and behind the DuT. Empty where none is.
    """
    both = set() if isinstance(over, str) else {*over.sriov} & {*outer}
    if not both:
        return ""
    return (
        f"{min(both)} has the cable before or behind the DuT, and a card has one cable: name "
        "another one"
    )


def _check_way(way: str, taps: str, graph: Graph) -> None:
    nodes = [node for node in graph.nodes if node.task == "dut"]
    over = ("dut", "over")
    require_fit(
        (
            taps != ENDS,
            ("dut", "taps"),
            f"taps between nodes see what is handed to {way}, not to the node: choose taps: ends",
            [over],
        ),
        (
            any(node.kind == "guest" for node in nodes),
            over,
            (
                f"a virtual machine has tap devices, which no {way} is: leave it out, or take "
                "another platform"
            ),
            [("dut", "platform")],
        ),
        (
            any(node.placement.threads for node in nodes),
            ("dut", "napi"),
            f"{way} is not polled: take napi: softirq",
            [over],
        ),
        (
            any(link.carded for link in graph.links),
            over,
            f"network cards are the ports, and no {way} lies on them: leave it out",
            [("dut", "ports")],
        ),
    )


def check_functions(members: Sequence[Member], *, both_ways: bool) -> None:
    """Raises `Misfit` unless packets can come in by functions of the DuT's cards, and leave."""
    routes = (FORWARDERS[one.dut.forwarder].routes for one in (members[0], members[-1]))
    require_fit(
        (
            both_ways and not all(routes),
            ("dut", "functions"),
            (
                "a card keeps what goes to the address of one of its functions, as packets both "
                "ways do that no router has addressed anew: take one direction, or a forwarder "
                "that routes"
            ),
            [("traffic", "bidirectional")],
        ),
    )


def with_links_over(graph: Graph, over: Sriov | str, *, functions: bool) -> Graph:
    """The same graph, with the links of its DuT made of what `over` says, and with virtual
    functions of its outer cards in place of these.
    """
    graph = by_functions(graph) if functions else graph
    if over == VETH:
        return graph
    return over_ways(graph, over) if isinstance(over, str) else over_channels(graph, over.sriov)


def foresee_over(graph: Graph, findings: Findings) -> None:
    """Find out whether the cards of a graph have the virtual functions that it needs."""
    for way in {link.way for link in graph.links if link.way is not None}:
        findings.ask(require_way, way)
    wanted = Counter(dict(link.carded)[port] for port, link in graph.functions)
    for card, count in wanted.items():
        if findings.ask(CardState.of, card) is None:
            continue
        able = Ability.of(card)
        findings.ask(able.require, count)
        findings.ask(able.require_driver)
    if any(graph.node(port.node).kind == "guest" for port, _ in graph.functions):
        findings.ask(pci.require_iommu)
        findings.ask(pci.require_driver)


IN, OUT = "in", "out"
"""What is before the first node of a path, and behind its last one."""

_NAME = re.compile(r"[a-z][a-z0-9-]{0,11}")
_BETWEEN = re.compile(r"\s+-\s+")


def _is_chain(text: str) -> str:
    """Raises `ValueError` unless this is names with ` - ` between them."""
    names = nodes_of(text)
    wrong = next((name for name in names if not _NAME.fullmatch(name)), None)
    if wrong is not None or len(names) < 2:
        raise ValueError(
            f"{text!r} joins no nodes: write names with ' - ' between them, such as in - fw - out"
        )
    if IN in names[1:] or OUT in names[:-1]:
        raise ValueError(f"{text!r}: {IN} only begins such a chain, and {OUT} ends it")
    for one, other in pairwise(names):
        if one == other or (one, other) == (IN, OUT):
            raise ValueError(f"{text!r}: {one} and {other} cannot be joined")
    return text


def nodes_of(chain: str) -> list[str]:
    """The names in ``in - fw - out``."""
    return _BETWEEN.split(chain.strip())


Links: TypeAlias = Annotated[
    list[Annotated[str, AfterValidator(_is_chain)]], Written("list of chains of names")
]


def joined(links: Sequence[str]) -> dict[str, list[str]]:
    """Where packets may go from each node, and from `in`; in the order of the links."""
    found: dict[str, dict[str, None]] = {IN: {}, OUT: {}}
    for chain in links:
        for one, other in pairwise(nodes_of(chain)):
            found.setdefault(one, {})[other] = None
            found.setdefault(other, {})
            if one != IN and other != OUT:
                found[other][one] = None
    return {name: list(others) for name, others in found.items()}


def simple_ways(links: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, ...]]:
    """The ways from `in` to `out` that pass no node twice, without these two.

    Each takes a time that is a power of the number of nodes, however many ways there are.
    """
    path = [IN]
    pending = [iter(links[IN])]
    while pending:
        following = next(pending[-1], None)
        if following is None:
            pending.pop()
            path.pop()
        elif following == OUT:
            yield tuple(path[1:])
        elif following not in path and _reaches_out(links, following, path):
            path.append(following)
            pending.append(iter(links[following]))


def _reaches_out(links: Mapping[str, Sequence[str]], start: str, without: Sequence[str]) -> bool:
    seen, waiting = {start, *without}, [start]
    while waiting:
        for other in links[waiting.pop()]:
            if other == OUT:
                return True
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    return False


MOST_NODES = 100
MOST_FLOWS = 1000
PATH: Final = "path"
OF_FLOWS: Final = ("rate", "pattern", "size", "flows", "ttl", "cpu", "cpus")
"""Keys of `traffic` that a flow may have of its own."""
DESTINATIONS: Mapping[int, Address] = {4: IPv4Address("198.19.0.0"), 6: IPv6Address("2001:2::")}
"""The destinations of flows follow these, by version of IP: of the networks that are kept for
benchmarks (RFC 2544, RFC 5180)."""
FIRST_PORT = 1001
"""The UDP destination port of the first flow, as in hardware-supported-containers."""

FlowName: TypeAlias = Annotated[
    str, Matching(r"^[a-z][a-z0-9-]{0,23}$", name_words(24, "web-1")), Written("name")
]
"""What a flow may be called, as a part of names of folders."""


def check_links(dut: Dut) -> None:
    """Raises `Misfit` unless `dut.links` joins nodes that there are, and flows pass them."""
    if dut.links and "line" in dut.model_fields_set:
        raise Misfit(("links",), "dut.line says which nodes there are already: write one of the "
                     "two", [("line",)])  # fmt: skip
    names = kinds_of(dut)
    links = joined(dut.links)
    for name in links:
        if name not in names and name not in (IN, OUT):
            known = did_you_mean(name, list(names)) if names else "describe it there"
            raise Misfit(("links",), f"dut.nodes has no {name}: {known}", [("nodes",)])
        if len(name) > LONGEST_NODE:
            raise Misfit(
                ("links",),
                f"{name} is too long for names of ports: a node has {LONGEST_NODE} characters",
            )
    if len(links) - 2 > MOST_NODES:
        raise Misfit(("links",), f"{len(links) - 2} nodes are too many: take {MOST_NODES} or less")
    if len(dut.flows) > MOST_FLOWS:
        raise Misfit(("flows",), f"{len(dut.flows)} flows are too many: take {MOST_FLOWS} or less")
    for name, flow in dut.flows.items():
        for key in flow:
            if key not in (PATH, *OF_FLOWS):
                whole = key in Traffic.model_fields
                why = "all flows have this key in common: write it in traffic" if whole else (
                    f"unknown key: {did_you_mean(key, [PATH, *OF_FLOWS])}")  # fmt: skip
                raise Misfit(("flows", name, key), why)
        if PATH in flow:
            _check_path(dut, name, flow[PATH], links)
    if dut.links:
        paths_of(dut)


def _check_path(dut: Dut, flow: str, path: Any, links: Mapping[str, Sequence[str]]) -> None:
    """Raises `Misfit` unless links join the nodes of a path."""

    def refuse(reason: str) -> Misfit:
        return Misfit(("flows", flow, PATH), reason, [("links",)])

    if not dut.links:
        raise refuse("every flow passes the whole line: leave path out, or name links in dut.links")
    names = isinstance(path, list) and all(isinstance(name, str) for name in path)
    if not names or len(path) < 3 or path[0] != IN or path[-1] != OUT:
        raise refuse(f"write the names of nodes as packets pass them, such as [{IN}, fw, {OUT}]")
    for one, other in pairwise(path):
        if other not in links.get(one, ()):
            beside = ", ".join(links.get(one, ())) or "no node"
            raise refuse(f"no link joins {one} and {other}: from {one} packets get to {beside}")
    for name in path:
        if path.count(name) > 1:
            raise refuse(f"{name} is there twice: packets pass each node once")


def paths_of(dut: Dut) -> dict[str, tuple[str, ...]]:
    """The nodes that each flow passes, in their order.

    Raises `Misfit` where a flow without a path has not exactly one way.
    """
    if not dut.links:
        line = tuple(member.name for member in dut.members)
        return dict.fromkeys(dut.flows or (FORWARD,), line)
    sole: tuple[str, ...] | None = None
    found: dict[str, tuple[str, ...]] = {}
    for name, flow in (dut.flows or {FORWARD: {}}).items():
        if PATH in flow:
            found[name] = tuple(flow[PATH][1:-1])
        else:
            sole = sole or _sole_way(dut, name)
            found[name] = sole
    return found


def _sole_way(dut: Dut, flow: str) -> tuple[str, ...]:
    every = simple_ways(joined(dut.links))
    first, second = next(every, None), next(every, None)
    at = ("flows", flow) if flow in dut.flows else ("links",)
    if first is None:
        raise Misfit(at, f"no links lead from {IN} to {OUT}: begin a chain with {IN} and end one "
                     f"with {OUT}", [("links",)])  # fmt: skip
    if second is not None:
        one, other = (" - ".join((IN, *way, OUT)) for way in (first, second))
        raise Misfit(at, f"there are several ways, {one} and {other}: say which with a path in "
                     "dut.flows", [("links",)])  # fmt: skip
    return first


def sent_as(dut: Dut, traffic: Traffic) -> dict[str, Traffic]:
    """What is sent as each of `dut.flows`: its own keys, and those of `traffic` for the rest.

    Its destination is its own as well, unless its `flows` say where they go. Raises `Misfit`.
    """
    how: dict[str, Any] = {"mode": "json", "exclude_unset": True, "context": dict(AS_WRITTEN)}
    common = traffic.model_dump(**how)
    return {
        name: _sent_as(dut, traffic, common, name, place) for place, name in enumerate(dut.flows)
    }


def _sent_as(
    dut: Dut, traffic: Traffic, common: Mapping[str, Any], name: str, place: int
) -> Traffic:
    """What is sent as one flow; `common` is `traffic` as written, `place` the flow's number."""
    own = {key: value for key, value in dut.flows[name].items() if key != PATH}
    sent = traffic
    if own:
        with as_misfit(("dut", "flows", name), Traffic, OF_FLOWS, [("traffic",)]):
            elsewhere = {"cpu", "cpus"} if {"cpu", "cpus"} & own.keys() else set[str]()
            shared = {key: value for key, value in common.items() if key not in elsewhere}
            sent = Traffic.model_validate({**shared, **own})
    flows = sent.flows if isinstance(sent.flows, Flows) else numbered(sent.flows, sent.ip)
    if dut.routing == "address" and flows.dst is None:
        destination = DESTINATIONS[sent.ip] + place + 1
        flows = flows.model_copy(update={"dst": str(destination)})
    elif dut.routing == "port" and flows.dport is None:
        flows = flows.model_copy(update={"dport": str(FIRST_PORT + place)})
    return sent.model_copy(update={"flows": flows})


def check_network(experiment: Experiment) -> None:
    """Raises `Misfit` unless the nodes can be made and joined, and every flow finds its way."""
    dut, traffic = experiment.dut, experiment.traffic
    if traffic.bidirectional:
        raise Misfit(("traffic", "bidirectional"), "a network has a flow for each direction: leave "
                     "it out, and write both in dut.flows", [("dut",)])  # fmt: skip
    if dut.flows and (traffic.replay is not None or traffic.external is not None):
        key = "external" if traffic.replay is None else "replay"
        raise Misfit(("traffic", key), "dut.flows have addresses that tailtap gives its own "
                     "packets: leave it out", [("dut", "flows")])  # fmt: skip
    sent = {name: experiment.traffic_of(name) for name in experiment.flows}
    members = dut.members
    if not any(PLATFORMS[one.dut.platform].traits.has_dut for one in members):
        return
    nodes: KeyPath = ("dut", "links" if dut.links else "flows")
    check_members(dut, members, nodes)
    routers = {one.name for one in members if FORWARDERS[one.dut.forwarder].routes}
    for name, path in paths_of(dut).items():
        at = ("dut", "flows", name, "ttl") if "ttl" in dut.flows.get(name, {}) else None
        check_routers(sent[name], len(routers & set(path)), at)
    graph = experiment.graph()
    for one in members:
        _check_forwarder(one, graph, nodes)
    _check_apart(experiment, ways(graph), {name: one.ranges() for name, one in sent.items()})
    if dut.taps != ENDS:
        _check_stamped(graph)


def _check_forwarder(member: Member, graph: Graph, key: KeyPath) -> None:
    """Raises `Misfit` unless the forwarder of a node can serve all of the node's ways."""
    passes = graph.passes(member.name)
    chosen = FORWARDERS[member.dut.forwarder].serves
    wanted = serving(passes)
    if _LEVELS.index(chosen) < _LEVELS.index(wanted):
        fitting = able(FORWARDERS, lambda row: _LEVELS.index(row.serves) >= _LEVELS.index(wanted))
        what = {
            "ports": f"has {len({port for way in passes for port in way})} ports",
            "flows": f"sends packets of {_branching(passes)} more than one way",
        }[wanted]
        raise Misfit(key, f"{member.name} {what}, which forwarder {member.dut.forwarder} cannot: "
                     f"take {fitting} there", [("dut", "nodes"), ("dut", "forwarder")])  # fmt: skip


_LEVELS: Sequence[Serves] = ("clients", "pair", "ports", "flows")


def serving(passes: Sequence[tuple[Port, Port]]) -> Serves:
    """The least that a forwarder must be able to do for packets to pass a node so."""
    if _branching(passes) is not None:
        return "flows"
    return "ports" if len({port for way in passes for port in way}) > 2 else "pair"


def _branching(passes: Sequence[tuple[Port, Port]]) -> str | None:
    """A port from which packets go several ways."""
    entered = [port for port, _ in passes]
    return next((port.name for port in entered if entered.count(port) > 1), None)


def _check_apart(
    experiment: Experiment, found: Mapping[str, Sequence[Way]], ranges: Mapping[str, Ranges]
) -> None:
    """Raises `Misfit` unless routers can tell flows apart that leave them by different ports."""
    dut = experiment.dut
    for member in dut.members:
        forwarder = FORWARDERS[member.dut.forwarder]
        if not forwarder.routes:
            continue
        # Routers with two ports go by addresses.
        by_port = dut.routing == "port" and forwarder.serves == "flows"
        for one, other in combinations(found[member.name], 2):
            if one.left == other.left or (by_port and one.entered != other.entered):
                continue
            first, second = ranges[one.flow], ranges[other.flow]
            what = "UDP port" if by_port else "address"
            if (
                _overlap(first.destination_ports, second.destination_ports)
                if by_port
                else _overlap(*(_numbers(each) for each in (first, second)))
            ):
                raise Misfit(
                    ("dut", "flows"),
                    f"{one.flow} and {other.flow} go to the same {what}, by which {member.name} "
                    "cannot tell them apart: give each another one in its flows, or leave it out "
                    "of traffic.flows",
                    [("traffic", "flows"), ("dut", "route_by")],
                )


def _numbers(ranges: Ranges) -> tuple[int, int]:
    first, count = ranges.destination
    return int(first), count


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether two ranges, as first value and count, have a value in common."""
    return one[0] < other[0] + other[1] and other[0] < one[0] + one[1]


def _check_stamped(graph: Graph) -> None:
    """Raises `Misfit` where a tap between nodes would see packets of two flows."""
    seen: dict[Port, str] = {}
    for flow in graph.flows:
        for port in flow.stamped[1:-1]:
            if port in seen:
                raise Misfit(
                    ("dut", "taps"),
                    f"{seen[port]} and {flow.name} both enter {port.node} at {port.name}, where a "
                    "tap cannot tell them apart: leave dut.taps out, or lead them other ways",
                    [("dut", "flows")],
                )
            seen[port] = flow.name
