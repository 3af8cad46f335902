"""Links over virtual functions of cards, and what crosses between NUMA nodes."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scratch_machine import unpacked

from tailtap.base.errors import InputError
from tailtap.host.changes.resource import Resource
from tailtap.host.cpu.cpus import Numa
from tailtap.host.net.cards import Card
from tailtap.host.net.namespaces import Namespace
from tailtap.host.net.port_work import CardInterrupts, PortThreads
from tailtap.host.net.virtual_functions import VirtualFunction, VirtualFunctions
from tailtap.lab.topology.compiler import compile_graph, in_order, placed
from tailtap.lab.topology.graph import Graph, Link, Node, Port
from tailtap.lab.topology.graphs import Cables, smallest
from tailtap.lab.topology.numbering import by_functions, numbered, over_channels
from tailtap.lab.topology.placement import (
    DEFAULT,
    Placed,
    Placement,
    cpus_of,
    crossings,
    facts,
    send_queues,
)
from tailtap.records.record import as_json

CARDS = ("left", "right")
IDENTITY = "0123ab"
NUMA = Numa((0, 1, 2, 3), {0: (0, 1), 1: (2, 3)}, {"left": 0, "right": 1})


def line(
    length: int,
    placement: Placement | None = None,
    *,
    frame_size: int = 0,
    cables: Cables | None = None,
) -> Graph:
    made = smallest("namespace", [1], length=length, frame_size=frame_size, cables=cables,
                    placement=placement or Placement((1,)))  # fmt: skip
    return over_channels(made, CARDS)


def made_of(graph: Graph) -> list[Resource]:
    """Everything, in the order in which a lab makes it."""
    parts = compile_graph(graph, IDENTITY, [3], NUMA)
    return [step.resource for step in in_order(step for steps in parts.values() for step in steps)]


def test_every_second_link_uses_the_cable_the_other_way() -> None:
    told = [as_json(link.record()) for link in line(4).links]
    assert ["vlan" in link for link in told] == [False, False, True, True, True, False]
    assert [(link["ends"], link["functions"], link["vlan"]) for link in told[2:5]] == [
        (["dut1:tt-out", "dut2:tt-in"],
         [{"card": "left", "function": 0}, {"card": "right", "function": 0}], 2),
        (["dut2:tt-out", "dut3:tt-in"],
         [{"card": "right", "function": 1}, {"card": "left", "function": 1}], 3),
        (["dut3:tt-out", "dut4:tt-in"],
         [{"card": "left", "function": 2}, {"card": "right", "function": 2}], 4),
    ]  # fmt: skip


@given(length=st.integers(1, 64), frame_size=st.integers(64, 9018))
def test_every_function_is_made_once_before_it_is_lent(length: int, frame_size: int) -> None:
    graph = line(length, frame_size=frame_size)
    every = made_of(graph)
    assert every == made_of(graph)
    cards = [one for one in every if isinstance(one, VirtualFunctions)]
    functions = [one for one in every if isinstance(one, VirtualFunction)]
    mtu = max(1500, frame_size - 18)
    expected = [VirtualFunctions(card, length - 1, mtu) for card in CARDS] if length > 1 else []
    assert cards == expected
    assert len(functions) == 2 * (length - 1)
    assert len({one.vlan for one in functions}) == length - 1
    assert len({one.label for one in functions}) == len(functions)
    assert len({one.interface for one in functions}) == len(functions)
    assert all(len(str(one.interface)) <= 15 for one in functions)
    lent = {one.interface: one for one in every if isinstance(one, Card)}
    own = {
        (f"tt-{IDENTITY}-{port.node}", port.name): addresses.mac
        for port, addresses in numbered(graph).items()
    }
    for function in functions:
        card = lent.pop(str(function.interface))
        assert own[card.namespace, card.port] == function.mac
        before = [cards[CARDS.index(function.card)], function, card]
        assert [every.index(one) for one in before] == sorted(every.index(one) for one in before)
    assert not lent
    last = max(place for place, one in enumerate(every) if isinstance(one, Namespace))
    assert all(every.index(one) > last for one in cards)


def test_functions_of_one_number_have_names_of_their_own() -> None:
    made = made_of(by_functions(line(3, cables=Cables(("first", "last"), ("tap0", "tap1")))))
    functions = [one for one in made if isinstance(one, VirtualFunction)]
    assert [one.label for one in functions if one.card not in CARDS] == ["first/0", "last/0"]
    assert len({one.interface for one in functions}) == len(functions) == 6


def test_functions_are_placed_as_cards_are() -> None:
    graph = line(2, Placement("node", napi="threads"))
    every = made_of(graph)
    going = {one.label: one.cpus for one in every if isinstance(one, CardInterrupts)}
    # A function is where its card is. CPU 0 does the housekeeping.
    assert going == {"tt-0123ab-dut1/tt-out": "1", "tt-0123ab-dut2/tt-in": "2,3"}
    [threads] = [one for one in every if isinstance(one, PortThreads) and one.card is not None]
    assert (threads.namespace, threads.port, threads.card, threads.cpus) == (
        "tt-0123ab-dut2", "tt-in", "tt-0123ab-v2b", "2,3",
    )  # fmt: skip
    assert placed(graph, "dut2", NUMA).cards == {"tt-in": "right"}
    assert (graph.cards, graph.cards_of("dut2")) == (list(CARDS), {})


def test_a_virtual_machine_has_its_functions_passed_through() -> None:
    """Its kernel finds them by their hardware addresses; here nothing more is set."""
    made = line(3)
    nodes = tuple(
        replace(node, kind="guest", placement=DEFAULT) if node.name == "dut2" else node
        for node in made.nodes
    )
    graph = replace(made, nodes=nodes)
    every = made_of(graph)
    functions = [one for one in every if isinstance(one, VirtualFunction)]
    own = numbered(graph)
    here = [(one.label, one.mac) for one in functions if one.interface is None]
    assert here == [
        ("right/0", own[Port("dut2", "tt-in")].mac),
        ("right/1", own[Port("dut2", "tt-out")].mac),
    ]
    assert [(one.namespace, one.port) for one in every if isinstance(one, Card)] == [
        ("tt-0123ab-dut1", "tt-out"),
        ("tt-0123ab-dut3", "tt-in"),
    ]
    assert not any("dut2" in str(one) for one in every if one not in functions)
    assert not graph.has_namespace("dut2")
    with pytest.raises(InputError, match=r"^dut\.irq, dut\.napi, dut\.queues: a virtual machine"):
        made_of(replace(graph, nodes=tuple(
            replace(node, kind="guest") if node.name == "dut2" else node
            for node in line(3, Placement((2,))).nodes
        )))  # fmt: skip


def test_a_cable_has_so_many_vlans() -> None:
    nodes = tuple(Node(f"n{number}", "dut") for number in range(4095))
    links = tuple(
        Link((Port(one.name, "out"), Port(other.name, "in")), 1500)
        for one, other in itertools.pairwise(nodes)
    )
    most = over_channels(Graph(nodes[:-1], links[:-1], ()), CARDS)
    assert most.channels[-1].record().vlan == 4094
    with pytest.raises(InputError, match=r"^dut\.over: one cable has 4093 VLANs"):
        over_channels(Graph(nodes, links, ()), CARDS)


RECORDED = {
    "intel-two-sockets": "ens1f0",
    "amd-epyc-four-nodes": "enp1s0f0np0",
    "raspberry-pi-4": "eth0",
    "cloud-vm": "eth0",
}


@pytest.fixture(params=sorted(RECORDED))
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Numa]:
    name: str = request.param
    return name, Numa.of([RECORDED[name]], unpacked(name, tmp_path))


def test_recorded_machines_say_where_their_cards_are(recorded: tuple[str, Numa]) -> None:
    name, numa = recorded
    expected = {
        # Node 1 has the card and no CPU of the housekeeping.
        "intel-two-sockets": (6, 7, 8, 9, 10, 11),
        "amd-epyc-four-nodes": (*range(16, 24), *range(48, 56)),
        # One node, to which all belongs.
        "raspberry-pi-4": (1, 2, 3),
        "cloud-vm": (1,),
    }[name]
    assert cpus_of(Placement("node"), (1,), RECORDED[name], numa) == expected


def test_a_device_that_works_far_from_its_card(tmp_path: Path) -> None:
    numa = Numa.of(["eno1", "ens1f0"], unpacked("intel-two-sockets", tmp_path))
    cards = {"tt-in": "ens1f0", "tt-out": "eno1"}
    core = Placed((1, 2), cards, {"tt-in": (1, 2)})
    assert list(crossings("dut", core, numa)) == [
        "the card ens1f0 (tt-in) is on NUMA node 1, and CPUs 1-2 of dut are on 0",
        (
            "the cards ens1f0 (tt-in) and eno1 (tt-out) are on NUMA nodes 1 and 0: dut copies "
            "packets from one to the other"
        ),
    ]
    both = Placed((5, 6), {"tt-in": "ens1f0"}, {"tt-in": (5, 6)})
    assert list(crossings("dut", both, numa)) == [
        "CPUs 5-6 of dut are on NUMA nodes 0-1",
    ]
    away = Placed((7,), {"tt-in": "ens1f0"}, {"tt-in": (5, 7)})
    assert list(crossings("dut", away, numa)) == [
        "packets of tt-in are received on CPUs 5 of NUMA node 0, and belong to 1",
    ]
    link = Placed((7,), {}, {"tt-in": (5,)})
    assert list(crossings("dut", link, numa)) == [
        "packets of tt-in are received on CPUs 5 of NUMA node 0, and belong to 1",
    ]
    near = Placed((7,), {"tt-in": "ens1f0"}, {"tt-in": (6, 7)})
    assert list(crossings("dut", near, numa)) == []
    told = facts("dut", core, numa)
    assert told["ports"] == {
        "tt-in": {"card": "ens1f0", "numa_node": 1, "cpus": [1, 2]},
        "tt-out": {"card": "eno1", "numa_node": 0},
    }
    assert told["numa_nodes"] == {"0": "0-5", "1": "6-11"}
    assert len(told["crossings"]) == 2


def test_a_machine_with_one_node_has_nothing_to_cross(tmp_path: Path) -> None:
    numa = Numa.of(["eth0"], unpacked("cloud-vm", tmp_path))
    placed = Placed((1,), {"tt-in": "eth0"}, {"tt-in": (0,)})
    assert list(crossings("dut", placed, numa)) == []


@given(st.lists(st.integers(0, 63), unique=True, min_size=1), st.integers(1, 70))
def test_every_cpu_and_every_queue_sends(cpus: list[int], queues: int) -> None:
    found = send_queues(cpus, queues)
    assert len(found) == queues
    assert all(found)
    assert {cpu for queue in found for cpu in queue} == set(cpus)
    # None has two more than another: they share as little as can be.
    assert max(map(len, found)) - min(map(len, found)) <= 1
