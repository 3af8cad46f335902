"""Graphs, networks and DuTs that answer: what they refuse, and their ports, flows, addresses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from ipaddress import IPv4Network, IPv6Network
from itertools import pairwise

import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st
from networks import Made, networks

from tailtap.base.errors import InputError
from tailtap.host.changes.kernel_values import KernelValue
from tailtap.host.cpu.cpus import Numa
from tailtap.host.net.namespaces import Link as Veth
from tailtap.lab.instruments.taps.inline import InlineTap
from tailtap.lab.instruments.taps.links import parse_link
from tailtap.lab.topology.compiler import compile_graph
from tailtap.lab.topology.graph import LONGEST_NAME, Flow, Graph, Link, Node, Port
from tailtap.lab.topology.graphs import (
    FORWARD,
    dut_names,
    network,
    served,
    share_out,
    smallest,
)
from tailtap.lab.topology.numbering import BEHIND, MOST_LINKS, numbered, ways
from tailtap.lab.topology.placement import Placement

MTU = 1500


def port(text: str) -> Port:
    node, _, name = text.partition(":")
    return Port(node, name)


def flow(name: str, path: str, stamped: str) -> Flow:
    return Flow(name, tuple(map(port, path.split())), tuple(map(port, stamped.split())))


GOOD = Graph(
    (Node("a", "generator"), Node("t", "timestamper"), Node("d", "dut")),
    (
        Link((port("a:0"), port("t:0")), MTU),
        Link((port("t:1"), port("d:0")), MTU),
        Link((port("d:1"), port("t:2")), MTU),
    ),
    (flow("f", "a:0 t:0 t:1 d:0 d:1 t:2", "t:0 t:2"),),
)
REFUSED = {
    "node a is there twice": lambda g: replace(g, nodes=(*g.nodes, Node("a", "dut"))),
    "port t:0 is there twice": lambda g: replace(
        g, links=(*g.links, Link((port("t:0"), port("d:2")), MTU))
    ),
    "port x:0 belongs to no node: there are a, t, d": lambda g: replace(
        g, links=(*g.links, Link((port("x:0"), port("d:2")), MTU))
    ),
    "port d:abcdefghijklmnop: a name has 1 to 15 characters": lambda g: replace(
        g, links=(*g.links, Link((port("d:abcdefghijklmnop"), port("t:9")), MTU))
    ),
    "flow f is there twice": lambda g: replace(g, flows=g.flows * 2),
    "flow g: there is no port d:7": lambda g: replace(
        g, flows=(flow("g", "a:0 t:0 t:1 d:0 d:7", "t:0 t:1"),)
    ),
    "flow g: no link joins t:0 and d:0": lambda g: replace(
        g, flows=(flow("g", "a:0 t:0 d:0 d:1 t:2", "t:0 t:2"),)
    ),
    "flow g: its tap points are two or more ports of its path, in order": lambda g: replace(
        g, flows=(flow("g", "a:0 t:0 t:1 d:0 d:1 t:2", "t:2 t:0"),)
    ),
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_cannot_be_is_refused(said: str) -> None:
    with pytest.raises(InputError) as caught:
        REFUSED[said](GOOD)
    assert str(caught.value).startswith(said)


def test_tap_points_are_at_least_two_on_the_path() -> None:
    for stamped in ("t:0", "t:0 t:0", "t:0 a:0"):
        with pytest.raises(InputError, match="two or more ports of its path"):
            replace(GOOD, flows=(flow("f", "a:0 t:0 t:1 d:0 d:1 t:2", stamped),))


LINK_LOCAL_V4, LINK_LOCAL_V6 = IPv4Network("169.254.0.0/16"), IPv6Network("fe80::/10")


def line(length: int, *, both_ways: bool = False) -> Graph:
    placement = Placement((1,))
    return smallest("namespace", (1,), length=length, both_ways=both_ways, placement=placement)


@cases(20)  # up to 100 nodes each
@given(st.integers(1, 100), st.booleans())
def test_every_inner_port_of_a_line_has_addresses_of_its_own(length: int, both_ways: bool) -> None:
    graph = line(length, both_ways=both_ways)
    addresses = numbered(graph)
    assert numbered(graph) == addresses
    inner = {
        port for port in graph.ports if {port.node, graph.peer(port).node} <= set(dut_names(length))
    }
    assert set(addresses) == inner
    assert len(inner) == 2 * (length - 1)
    assert len({one.mac for one in addresses.values()}) == len(addresses)
    for version in (4, 6):
        found = {one.ip(version) for one in addresses.values()}
        assert len(found) == len(addresses)
        assert BEHIND[version] not in found
    for port, one in addresses.items():
        assert one.v4 in LINK_LOCAL_V4
        assert one.v6 in LINK_LOCAL_V6
        # No bit says that it is a group's or a vendor's.
        assert int(one.mac[:2], 16) & 3 == 2
        # The two ends of a link differ in their last bit: they are a network of two (RFC 3021).
        peer = addresses[graph.peer(port)]
        assert int(one.v4) ^ int(peer.v4) == 1
        assert int(one.v6) ^ int(peer.v6) == 1


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=80, unique=True), st.integers(1, 64))
def test_the_nodes_of_a_line_share_the_cpus_out(cpus: list[int], length: int) -> None:
    shares = share_out(tuple(cpus), length)
    assert len(shares) == length
    if length > len(cpus):
        assert set(shares) == {tuple(cpus)}
    else:
        assert [cpu for share in shares for cpu in share] == cpus
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_one_device_has_no_addresses_but_those_of_the_generator() -> None:
    assert numbered(line(1)) == {}


def test_more_links_than_addresses_are_refused() -> None:
    nodes = (Node("a", "dut"), Node("b", "dut"))
    links = tuple(
        Link((Port("a", f"p{n}"), Port("b", f"p{n}")), 1500) for n in range(MOST_LINKS + 1)
    )
    with pytest.raises(InputError, match="too many"):
        numbered(Graph(nodes, links, ()))


FEW = cases(25)  # up to 100 nodes and 40 flows each
PATHS = {"a": ["fw", "r1", "r2"], "b": ["fw", "r3"]}


def graph_of(made: Made, *, hops: bool = False) -> Graph:
    return network([Node(name, "dut") for name in made.nodes], made.paths, hops=hops)


def test_two_flows_that_part() -> None:
    nodes = [Node(name, "dut") for name in ("fw", "r1", "r2", "r3")]
    graph = network(nodes, PATHS, frame_size=9018, hops=True)
    assert [str(port) for port in graph.flow("a").path] == [
        "gen:tt-gen1", "tap:tt-a0-1", "tap:tt-a1-1", "fw:tt-in1", "fw:to-r1", "r1:to-fw",
        "r1:to-r2", "r2:to-r1", "r2:tt-out1", "tap:tt-b0-1",
    ]  # fmt: skip
    assert [str(port) for port in graph.flow("b").stamped] == [
        "tap:tt-a0-2",
        "r3:to-fw",
        "tap:tt-b0-2",
    ]
    assert [(entered.name, left.name) for entered, left in graph.passes("fw")] == [
        ("tt-in1", "to-r1"),
        ("tt-in2", "to-r3"),
    ]
    assert {link.mtu for link in graph.links} == {9000}
    assert graph.flow("a").passed == PATHS["a"]


def test_without_nodes_each_flow_goes_from_tap_to_tap() -> None:
    graph = network([], {"a": [], "b": []})
    assert [str(port) for port in graph.flow("b").path] == [
        "gen:tt-gen2", "tap:tt-a0-2", "tap:tt-a1-2", "tap:tt-b0-2",
    ]  # fmt: skip


@FEW
@given(networks())
def test_flows_pass_their_nodes_and_share_nothing_but_links_between_them(made: Made) -> None:
    graph = graph_of(made, hops=True)
    assert graph_of(made, hops=True) == graph
    assert all(len(port.name) <= LONGEST_NAME for port in graph.ports)
    ends: list[object] = []
    for flow in graph.flows:
        assert flow.passed == list(made.paths[flow.name])
        assert [point.before for point in flow.points] == [*made.paths[flow.name], None]
        ends += [*flow.path[:4], *flow.path[-2:]]
    assert len(set(ends)) == len(ends)
    between = {frozenset(pair) for path in made.paths.values() for pair in pairwise(path)}
    assert len(graph.links) == 3 * len(made.paths) + len(between)


@FEW
@given(networks())
def test_addresses_are_unique(made: Made) -> None:
    graph = graph_of(made)
    addresses = numbered(graph)
    for key in ("mac", "v4", "v6"):
        assert len({getattr(one, key) for one in addresses.values()}) == len(addresses)
    assert not {BEHIND[4], BEHIND[6]} & {one.ip(n) for one in addresses.values() for n in (4, 6)}


def graph(clients: Sequence[int] = (0,)) -> Graph:
    return served(Node("dut", "dut", "namespace", (1,)), clients)


def test_requests_go_there_and_answers_back() -> None:
    flow = graph().flow(FORWARD)
    assert flow.answered
    assert not smallest("namespace", (1,)).flow(FORWARD).answered
    assert flow.passed == ["dut"]
    assert [(point.name, point.before) for point in flow.points] == [
        ("ingress", "dut"),
        ("egress", None),
    ]
    assert graph().passes("dut") == [(Port("dut", "tt-in"), Port("dut", "tt-in"))]
    [way] = ways(graph())["dut"]
    assert way.entered == way.left == Port("dut", "tt-in")


def test_each_side_receives_on_its_own_cpus() -> None:
    steps = compile_graph(graph(), "0a1b2c", (0,), Numa((0, 1), {}, {}))
    made = [step.resource for node in steps.values() for step in node]
    assert sum(isinstance(one, Veth) for one in made) == 2
    steered = {one.paths[0]: one.value for one in made if isinstance(one, KernelValue)}
    assert steered == {
        "/sys/class/net/tt-gen/queues/rx-*/rps_cpus": "00000001",
        "/sys/class/net/tt-in/queues/rx-*/rps_cpus": "00000002",
    }


def test_taps_hand_on_both_ways() -> None:
    typed = [str(link) for link in InlineTap().links(graph().flow(FORWARD), {})]
    assert typed == ["ingress=tt-a0:dev:tt-a1", "egress=tt-a1@arrival:dev:tt-a0"]
    assert [str(parse_link(text)) for text in typed] == typed
