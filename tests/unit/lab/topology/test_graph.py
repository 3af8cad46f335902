"""Graphs as data: what they refuse, and what they tell of ports and flows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_records import wiring

from tailtap.base.errors import InputError
from tailtap.lab.topology.graph import Flow, Graph, Link, Node, Port
from tailtap.lab.topology.graphs import DUT, GENERATOR, TAPS, Cables, smallest

MTU = 1500


def port(text: str) -> Port:
    node, _, name = text.partition(":")
    return Port(node, name)


def flow(name: str, path: str, stamped: str) -> Flow:
    return Flow(name, tuple(map(port, path.split())), tuple(map(port, stamped.split())))


def test_one_dut_between_two_links() -> None:
    graph = smallest("namespace", (1,))
    assert [str(one) for one in graph.flow("forward").path] == [
        "gen:tt-gen", "tap:tt-a0", "tap:tt-a1", "dut:tt-in", "dut:tt-out", "tap:tt-b0",
    ]  # fmt: skip
    forward = graph.flow("forward")
    assert str(forward.generator) == "gen:tt-gen"
    assert (str(forward.ingress), str(forward.onward)) == ("tap:tt-a0", "tap:tt-a1")
    assert str(forward.egress) == "tap:tt-b0"
    assert [str(one) for one in graph.entered(DUT)] == ["dut:tt-in"]
    assert str(graph.peer(port("dut:tt-out"))) == "tap:tt-b0"
    assert graph.cards_of(DUT) == {}


def test_traffic_in_both_directions_enters_at_both_ports() -> None:
    graph = smallest("guest", (1,), both_ways=True)
    back = graph.flow("reverse")
    assert [str(one) for one in graph.entered(DUT)] == ["dut:tt-in", "dut:tt-out"]
    assert (str(back.ingress), str(back.onward)) == ("tap:tt-b1", "tap:tt-b0")
    assert (str(back.generator), str(back.egress)) == ("gen:tt-rev", "tap:tt-a1")


@pytest.mark.parametrize("both_ways", [False, True])
def test_without_a_dut_the_taps_are_joined(both_ways: bool) -> None:
    graph = smallest(both_ways=both_ways)
    assert [node.name for node in graph.nodes] == [GENERATOR, TAPS]
    assert str(graph.peer(port("tap:tt-a1"))) == "tap:tt-b0"
    assert len(graph.flows) == 1 + both_ways


def test_cables_join_the_cards_that_face_each_other() -> None:
    graph = smallest("container", (1,), cables=Cables(("in0", "out0"), ("before", "behind")))
    assert graph.cards_of(DUT) == {"tt-in": "in0", "tt-out": "out0"}
    assert graph.cards_of(TAPS) == {"tt-a1": "before", "tt-b0": "behind"}
    joined = {frozenset(link.cards) for link in graph.links if link.cards}
    assert joined == {frozenset(("in0", "before")), frozenset(("out0", "behind"))}


def test_links_are_wide_enough_for_the_frames() -> None:
    assert {link.mtu for link in smallest("namespace", frame_size=64).links} == {1500}
    assert {link.mtu for link in smallest("namespace", frame_size=9018).links} == {9000}


def test_as_json_it_says_what_is_joined_and_where_packets_are_stamped() -> None:
    told = wiring(smallest("namespace", (1, 2)))
    assert told["nodes"][2] == {
        "name": "dut",
        "task": "dut",
        "kind": "namespace",
        "cpus": [1, 2],
        "placement": {"irq": "core", "napi": "softirq"},
    }
    assert told["links"][0] == {"ends": ["gen:tt-gen", "tap:tt-a0"], "mtu": 1500}
    assert told["flows"][0]["stamped"] == ["tap:tt-a0", "tap:tt-b0"]


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
