"""Networks of nodes: every flow has ends of its own, and addresses and ports are unique."""

from __future__ import annotations

from itertools import pairwise

from cases import cases
from hypothesis import given
from networks import Made, networks

from tailtap.lab.topology.graph import LONGEST_NAME, Graph, Node
from tailtap.lab.topology.graphs import network
from tailtap.lab.topology.numbering import BEHIND, numbered

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
