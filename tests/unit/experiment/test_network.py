"""Lines and networks: how they are wired and stamped, which ways there are, what is sent where."""

from __future__ import annotations

import json
import time
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import yaml
from cases import cases
from experiment_files import check
from hypothesis import given
from hypothesis import strategies as st
from networks import Made, networks
from pydantic import ValidationError

from tailtap.experiment.model import ON_TESTBED, Experiment
from tailtap.experiment.network import IN, OUT, joined, simple_ways
from tailtap.experiment.plan import make_plan
from tailtap.host.cpu.cpus import Numa
from tailtap.host.net.cards import Card
from tailtap.host.net.virtual_functions import VirtualFunction, VirtualFunctions
from tailtap.lab.topology.compiler import compile_graph, in_order
from tailtap.lab.topology.graph import Port
from tailtap.lab.topology.graphs import FORWARD, Cables, dut_names
from tailtap.lab.topology.numbering import DESTINATION_MAC, LEAVING_MAC, ways
from tailtap.records.run import Function
from tests.unit.experiment.test_refused import BRANCHING, ROUTED


def experiment(dut: dict[str, Any], **traffic: Any) -> Experiment:
    return Experiment.model_validate({"name": "wired", "dut": dut, "traffic": traffic})


def test_a_flow_is_a_run(tmp_path: Path) -> None:
    text = yaml.safe_dump({"name": "graph", "dut": BRANCHING, "traffic": {"rate": "1 kpkt/s"}})
    [run] = make_plan(check(tmp_path, text))
    assert [(one.slug, one.variables) for one in run.group] == [
        ("001-graph-a", {"flow": "a"}),
        ("002-graph-b", {"flow": "b"}),
    ]
    sent = [one.row().parameters.whole["traffic"] for one in run.group]
    assert [(one["rate"], one["size"]) for one in sent] == [(2000, 64), (1000, 256)]
    assert [one["pattern"]["kind"] for one in sent] == ["constant", "poisson"]


def test_a_flow_varies_by_its_path(tmp_path: Path) -> None:
    content = {
        "name": "graph",
        "dut": BRANCHING,
        "traffic": {},
        "vary": {"dut.flows.a.rate": ["1 kpkt/s", "3 kpkt/s"]},
    }
    plan = make_plan(check(tmp_path, yaml.safe_dump(content)))
    assert [run.experiment.traffic_of("a").rate for run in plan] == [1000, 3000]


def test_a_flow_has_its_name_with_and_without_others(tmp_path: Path) -> None:
    flows = BRANCHING["flows"]
    content = {
        "name": "tenants",
        "dut": {**BRANCHING, "flows": {}},
        "traffic": {},
        "vary": {"dut.flows": [{"b": dict(flows["b"])}, dict(flows)]},
    }
    plan = make_plan(check(tmp_path, json.dumps(content)))
    assert [[one.variables["flow"] for one in run.group] for run in plan] == [["b"], ["a", "b"]]


def test_nodes_are_counted_and_share_out_the_cpus() -> None:
    made = experiment({**BRANCHING, "cpus": [1, 2, 3, 4]})
    assert [(one.name, one.dut.platform, one.cpus) for one in made.dut.members] == [
        ("fw", "bare-metal", (1,)),
        ("r1", "container", (2,)),
        ("r2", "container", (3,)),
        ("r3", "container", (4,)),
    ]
    line = experiment({"line": ["r", "fw", "r"], "nodes": {"r": {"count": 2}, "fw": {}}})
    assert [one.name for one in line.dut.members] == ["r1", "r2", "fw", "r3", "r4"]


def test_what_no_flow_passes_is_not_made() -> None:
    flows = {"b": {"path": ["in", "fw", "r3", "out"]}}
    made = experiment({**BRANCHING, "flows": flows})
    assert [node.name for node in made.graph().nodes] == ["gen", "tap", "fw", "r3"]


@pytest.mark.parametrize(
    ("route_by", "version", "expected"),
    [
        (None, 4, [("198.19.0.1", 53), ("198.19.0.2", 53)]),
        ("address", 6, [("2001:2::1", 53), ("2001:2::2", 53)]),
        ("port", 4, [("10.1.0.1", 1001), ("10.1.0.1", 1002)]),
        ("port", 6, [("fd00:0:0:1::1", 1001), ("fd00:0:0:1::1", 1002)]),
    ],
)
def test_flows_have_destinations_of_their_own(
    route_by: str | None, version: int, expected: list[tuple[str, int]]
) -> None:
    made = experiment({**ROUTED, "route_by": route_by}, ip=version, size="128 B", flows=3)
    ranges = [made.traffic_of(name).ranges() for name in made.flows]
    found = [(str(one.destination[0]), one.destination_ports[0]) for one in ranges]
    assert found == expected
    assert {one.source[1] for one in ranges} == {3}


def test_a_flow_keeps_the_addresses_that_it_is_given() -> None:
    flows = {"a": {"flows": {"dst": "10.7.0.0-10.7.0.9"}}, "b": {}}
    made = experiment({"nodes": {"r": {}}, "links": ["in - r - out"], "flows": flows})
    assert made.traffic_of("a").ranges().destination[1] == 10
    assert str(made.traffic_of("b").ranges().destination[0]) == "198.19.0.2"


def test_the_flows_of_a_line_pass_all_of_it() -> None:
    made = experiment({"line": 3, "flows": {"a": {}, "b": {}}, "forwarder": "kernel-route"})
    assert [flow.passed for flow in made.graph().flows] == [["dut1", "dut2", "dut3"]] * 2
    single = experiment({"links": ["in - x - out"], "nodes": {"x": {}}})
    assert single.flows == (FORWARD,)
    assert single.graph().flow(FORWARD).passed == ["x"]


@cases(50)
@given(networks(most_nodes=8, most_flows=3))
def test_simple_ways_are_all_of_them(made: Made) -> None:
    chains = [f"{one} - {other}" for one, other in made.links]
    chains += [f"{IN} - {made.nodes[0]}", f"{made.nodes[-1]} - {OUT}"]
    links = joined(chains)

    def walk(path: list[str]) -> set[tuple[str, ...]]:
        found = set()
        for following in links[path[-1]]:
            if following == OUT:
                found.add(tuple(path[1:]))
            elif following not in path:
                found |= walk([*path, following])
        return found

    ways = list(simple_ways(links))
    assert len(set(ways)) == len(ways)
    assert set(ways) == walk([IN])


def test_two_ways_are_found_soon_in_a_large_network() -> None:
    """A mesh behind a dead end has more ways into it than anybody can look at."""
    mesh = [f"m{n}" for n in range(60)]
    chains = [f"{one} - {other}" for one in mesh for other in mesh if one < other]
    links = joined(["in - m0", *chains, "in - a - b - out"])
    began = time.monotonic()
    assert list(islice(simple_ways(links), 2)) == [("a", "b")]
    assert time.monotonic() - began < 5


def test_hops_and_ports_are_where_no_two_flows_are_taken_for_one() -> None:
    graph = experiment({**ROUTED, "taps": "hops"}).graph()
    assert [[point.before for point in flow.points] for flow in graph.flows] == [
        ["fw", "r1", "r2", None],
        ["fw", "r3", None],
    ]
    # Rules are of a port: two flows with ends of their own may have the same UDP port.
    experiment({**ROUTED, "route_by": "port"}, flows={"dport": "53"})
    experiment({**ROUTED, "route_by": "address"}, flows={"dport": "53"})


@pytest.mark.parametrize(
    ("dut", "ttl"),
    [
        ({"line": 2, "forwarder": "testpmd", "cpus": [1, 2]}, 64),
        ({"line": ["a", "b", "a"], "nodes": {"a": {}, "b": {"forwarder": "fault"}}}, 1),
        ({"line": 63, "forwarder": "kernel-route"}, 64),
        ({"line": 64, "forwarder": "kernel-route"}, 65),
        ({"line": 64}, 1),
        ({"line": 64, "platform": "wire", "forwarder": "testpmd"}, 1),
    ],
)
def test_what_can_form_a_line(dut: dict[str, Any], ttl: int) -> None:
    experiment(dut, ttl=ttl)


def test_a_line_has_a_node_and_a_link_more_for_each() -> None:
    graph = experiment({"line": 5}).graph()
    assert [node.name for node in graph.nodes] == ["gen", "tap", *dut_names(5)]
    assert [str(port) for port in graph.flow("forward").path] == [
        "gen:tt-gen",
        "tap:tt-a0",
        "tap:tt-a1",
        *(f"dut{n}:{port}" for n in range(1, 6) for port in ("tt-in", "tt-out")),
        "tap:tt-b0",
    ]
    assert len(graph.links) == 7
    assert {link.mtu for link in experiment({"line": 5}, size="9000 B").graph().links} == {8982}


@pytest.mark.parametrize("sender", [None, ("s0", "s1")])
@pytest.mark.parametrize(
    "dut", [{"line": 3}, {"line": ["a", "b", "a"], "nodes": {"a": {}, "b": {"cpus": [1]}}}]
)
def test_cards_are_the_ends_of_a_line(dut: dict[str, Any], sender: tuple[str, str] | None) -> None:
    """With splitters and without: its inner links are the lab's, and the taps see its ends."""
    on_testbed = Experiment.model_validate(
        {"name": "line", "dut": dut, "traffic": {}}, context={ON_TESTBED: True}
    ).wired([Cables(("i", "o"), ("t0", "t1"), sender)])
    graph, plain = on_testbed.graph(), experiment(dut).graph()
    cards = {str(port): card for link in graph.links for port, card in link.carded}
    first, *_, last = on_testbed.dut.members
    ends = {f"{first.name}:tt-in": "i", f"{last.name}:tt-out": "o"}
    taps = (
        {"tap:tt-a1": "t0", "tap:tt-b0": "t1"}
        if sender is None
        else {"tap:tt-a0": "t0", "tap:tt-b0": "t1", "gen:tt-gen": "s0", "gen:tt-back": "s1"}
    )
    assert cards == {**ends, **taps}
    inner = [link for link in plain.links if {port.node for port in link.ends} <= plain.devices]
    assert [link for link in graph.links if link.ends in [one.ends for one in inner]] == inner
    [flow], [before] = graph.flows, plain.flows
    assert flow.passed == before.passed
    assert [str(port) for port in flow.stamped] == ["tap:tt-a0", "tap:tt-b0"]
    assert set(ways(graph)) == set(ways(plain))


def test_a_line_of_one_is_the_device_that_it_was() -> None:
    assert experiment({"line": 1}).graph() == experiment({}).graph()


@pytest.mark.parametrize(
    ("dut", "expected"),
    [
        # With fewer CPUs than nodes, all nodes are on all of them.
        ({"line": 3}, [((1,), (1,))] * 3),
        ({"line": 2, "cpus": [1, 2]}, [((1,), "core"), ((2,), "core")]),
        ({"line": 2, "cpus": [1, 2], "irq": "none"}, [((1,), "none"), ((2,), "none")]),
        ({"line": 3, "cpus": [1, 2], "irq": "none"}, [((1, 2), "none")] * 3),
    ],
)
def test_where_the_nodes_of_a_line_work(dut: dict[str, Any], expected: list[Any]) -> None:
    made = experiment(dut)
    nodes = [node for node in made.graph().nodes if node.task == "dut"]
    assert [(node.cpus, node.placement.irq) for node in nodes] == expected
    irq = nodes[0].placement.record().irq
    assert made.parameters()["dut"]["irq"] == irq


@given(st.integers(2, 64), st.booleans())
def test_hops_have_a_tap_point_between_any_two_nodes(length: int, both_ways: bool) -> None:
    """They are where a packet comes into a node, so that a hop is a node and the link behind it."""
    graph = experiment({"line": length, "taps": "hops"}, bidirectional=both_ways).graph()
    plain = experiment({"line": length}, bidirectional=both_ways).graph()
    assert (graph.nodes, graph.links) == (plain.nodes, plain.links)
    assert [flow.path for flow in graph.flows] == [flow.path for flow in plain.flows]
    tapped: list[Port] = []
    for flow, ends in zip(graph.flows, plain.flows, strict=True):
        nodes = dut_names(length)[:: 1 if flow.name == "forward" else -1]
        assert flow.passed == nodes
        assert (flow.ingress, flow.egress) == (ends.ingress, ends.egress)
        assert [(point.name, point.before) for point in flow.points] == [
            ("ingress", nodes[0]),
            *((node, node) for node in nodes[1:]),
            ("egress", None),
        ]
        within = [point.port for point in flow.points[1:-1]]
        assert within == [port for port in flow.path if port in within]
        for port in within:
            assert port in graph.entered(port.node)
            assert graph.peer(port) == flow.path[flow.path.index(port) - 1]
        tapped += within
    assert len(set(tapped)) == len(tapped) == (length - 1) * len(graph.flows)


@given(st.integers(2, 64), st.booleans())
def test_queues_have_one_more_where_each_node_receives(length: int, both_ways: bool) -> None:
    graph = experiment({"line": length, "taps": "queues"}, bidirectional=both_ways).graph()
    plain = experiment({"line": length, "taps": "hops"}, bidirectional=both_ways).graph()
    for flow, hops in zip(graph.flows, plain.flows, strict=True):
        assert [point for point in flow.points if not point.received] == hops.points
        received = [point for point in flow.points if point.received]
        assert [point.before for point in received] == flow.passed
        entered = [next(port for port in flow.path if port.node == node) for node in flow.passed]
        assert [point.port for point in received] == entered
        # Packets are handed over to a node before it receives them.
        places = [flow.points.index(point) for point in received]
        assert places == list(range(1, 2 * length, 2))
        assert len({point.name for point in flow.points}) == 2 * length + 1


def test_nodes_have_their_own_keys_and_those_of_the_whole() -> None:
    made = experiment(
        {
            "cpus": [1, 2, 3],
            "memory": "64 MiB",
            "forwarder": {"fault": {"drop": [1]}},
            "line": ["r", "fw", "r"],
            "nodes": {
                "r": {"forwarder": "kernel-route", "cpus": [1]},
                "fw": {"platform": "container", "irq": "none"},
            },
        }
    )
    members = made.dut.members
    assert [(one.name, one.dut.platform, one.dut.forwarder, one.cpus) for one in members] == [
        ("r1", "bare-metal", "kernel-route", (1,)),
        ("fw", "container", "fault", (1, 2, 3)),
        ("r2", "bare-metal", "kernel-route", (1,)),
    ]
    assert [one.dut.options for one in members] == [{}, {"drop": [1]}, {}]
    # Nodes that share CPUs receive on theirs unless they say otherwise.
    assert [one.placement.irq for one in members] == [(1,), "none", (1,)]
    assert made.devices()[1][1].options.memory == 64 << 20
    graph = made.graph()
    assert [(node.name, node.kind) for node in graph.nodes if node.task == "dut"] == [
        ("r1", "namespace"),
        ("fw", "container"),
        ("r2", "namespace"),
    ]
    assert made.traits.virtualization == "container"
    # The first router is addressed by the generator, and sends to the next one, past the fault.
    found = ways(graph)
    [first], [last] = found["r1"], found["r2"]
    assert first.mac == DESTINATION_MAC
    assert first.next is not None
    assert first.next.mac == last.mac
    assert last.next is None


@pytest.mark.parametrize(
    ("forwarder", "irq", "fits"),
    [("tc-mirred", "core", True), ("fault", "core", False), ("fault", [1, 3], False),
     ("fault", [2, 3], True)],
)  # fmt: skip
def test_threads_that_never_sleep_leave_a_forwarder_its_cpus(
    forwarder: str, irq: object, fits: bool
) -> None:
    dut = {"forwarder": forwarder, "irq": irq, "napi": "busy-poll", "cpus": [1]}
    if fits:
        assert experiment(dut).dut.members[0].placement.napi == "busy-poll"
    else:
        with pytest.raises(ValidationError, match="leaves nothing of its CPU to dut's fault"):
            experiment(dut)


SRIOV = {"sriov": ["ens1f0", "ens1f1"]}
TRAFFIC = {"rate": "1 kpkt/s", "duration": "1 s"}


def over_cable(**dut: Any) -> Experiment:
    dut = {"forwarder": "kernel-route", "over": SRIOV, **dut}
    return Experiment.model_validate({"name": "over", "dut": dut, "traffic": TRAFFIC})


def test_links_between_nodes_are_over_the_cable() -> None:
    channels = over_cable(line=7).graph().channels
    assert [channel.record().vlan for channel in channels] == [2, 3, 4, 5, 6, 7]
    assert over_cable(line=7, over="veth").graph().channels == []
    assert over_cable(line=1).graph() == over_cable(line=1, over="veth").graph()


def test_links_of_a_network_are_over_the_cable() -> None:
    links = ["in - r1 - r2 - out", "r1 - r3 - out"]
    flows = {"a": {"path": ["in", "r1", "r2", "out"]}, "b": {"path": ["in", "r1", "r3", "out"]}}
    made = over_cable(nodes={"r": {"count": 3}}, links=links, flows=flows, irq="none")
    assert [
        ({port.node for port in link.ends}, link.record().vlan) for link in made.graph().channels
    ] == [({"r1", "r2"}, 2), ({"r1", "r3"}, 3)]


PORTS = {"dut": ["c0", "c3"], "tap": ["c1", "c2"]}


def by_functions(*, both_ways: bool = False, **dut: Any) -> Experiment:
    dut = {"forwarder": "kernel-route", "ports": PORTS["dut"], "functions": True, **dut}
    traffic = {**TRAFFIC, "bidirectional": both_ways}
    tap = {"ports": PORTS["tap"]}
    return Experiment.model_validate({"name": "over", "dut": dut, "tap": tap, "traffic": traffic})


@pytest.mark.parametrize("both_ways", [False, True])
def test_functions_of_cards_are_the_ends_of_a_line(both_ways: bool) -> None:
    """Beside those of the cable between its nodes. The card gives them what has their address."""
    graph = by_functions(both_ways=both_ways, line=2, over=SRIOV).graph()
    parts = compile_graph(graph, "0123ab", [0], Numa((0, 1), {0: (0, 1)}, {}))
    made = [step.resource for step in in_order(one for part in parts.values() for one in part)]
    cards = [(one.interface, one.count) for one in made if isinstance(one, VirtualFunctions)]
    assert cards == [("c0", 1), ("ens1f0", 1), ("ens1f1", 1), ("c3", 1)]
    outer = {one.label: (one.mac, one.vlan) for one in made
             if isinstance(one, VirtualFunction) and one.card in PORTS["dut"]}  # fmt: skip
    back = DESTINATION_MAC if both_ways else LEAVING_MAC
    assert outer == {"c0/0": (DESTINATION_MAC, 0), "c3/0": (back, 0)}
    lent = {one.port: one.interface for one in made
            if isinstance(one, Card) and one.namespace == "tt-0123ab-tap"}  # fmt: skip
    assert lent == {"tt-a1": "c1", "tt-b0": "c2"}
    [first] = [link.record() for link in graph.links if "c0" in (link.cards or ())]
    assert (first.cards, first.vlan) == (["c1", "c0"], None)
    assert first.functions == [Function(card="c0", function=0)]


def test_what_no_router_addresses_anew_comes_by_functions_one_way_only() -> None:
    assert by_functions(forwarder="tc-mirred").graph().functions
    with pytest.raises(ValidationError, match="take one direction, or a forwarder that routes"):
        by_functions(forwarder="tc-mirred", both_ways=True)
