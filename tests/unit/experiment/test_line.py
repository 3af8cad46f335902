"""`dut.line`, `dut.taps`: how a line is wired and stamped, and what keeps an experiment from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from experiment_files import complaint
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tailtap.experiment.model import ON_TESTBED, Experiment
from tailtap.lab.topology.graph import Port
from tailtap.lab.topology.graphs import Cables, dut_names
from tailtap.lab.topology.numbering import DESTINATION_MAC, ways


def experiment(dut: dict[str, Any], **traffic: Any) -> Experiment:
    return Experiment.model_validate({"name": "line", "dut": dut, "traffic": traffic})


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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dut: {line: 65}", "65 is wrong, wanted: 64 or less"),
        (
            "dut: {line: 64, forwarder: kernel-route}",
            "traffic.ttl: packets with a time to live of 64 end before the end of a line of 64",
        ),
        ("dut: {forwarder: kernel-route}\ntraffic: {ttl: 1}", "it must be 2 or more"),
        (
            "dut: {line: 2, platform: vm, huge_pages: true}",
            "dut.huge_pages: huge pages are reserved for one virtual machine, not for dut1 and",
        ),
        (
            "dut: {line: 2, forwarder: testpmd}",
            "dut.line: dut1 and dut2 share CPU 1, and forwarder testpmd needs CPUs of its own",
        ),
        ("dut: {line: 2, irq: core}", "dut.irq: core gives each node a core of its own"),
        ("dut: {line: [a]}", "dut.line: dut.nodes has no a: describe it there"),
        ("dut: {line: [b], nodes: {a: {}}}", "dut.line: dut.nodes has no b: known: a"),
        ("dut: {line: [a, a, a2], nodes: {a: {}, a2: {}}}", "something else is called a2"),
        ("dut: {line: [tap], nodes: {tap: {}}}", "something else is called tap"),
        ("dut: {nodes: {a: {}, b: {}}}", "dut.nodes: dut.line names none of these nodes"),
        ("dut: {line: [A], nodes: {A: {}}}", "'A' does not do: write at most 12 small letters"),
        ("dut: {line: [a], nodes: {a: {line: 2}}}", "dut.nodes.a.line: a node does not have this"),
        ("dut: {line: [a], nodes: {a: {cpu: 1}}}", "dut.nodes.a.cpu: unknown key: did you mean 'c"),
        ("dut: {line: [a], nodes: {a: {cpus: [2]}}}", "dut.nodes.a.cpus: CPU 2 is none of dut.cpu"),
        (
            "dut: {line: [a], nodes: {a: {cpus: one}}}",
            "dut.nodes.a.cpus: 'one' is wrong, wanted: CPU number",
        ),
        (
            "dut: {line: [a], nodes: {a: {memory: 1 GiB}}}",
            "dut.nodes.a.memory: platform bare-metal does not have this key",
        ),
        (
            "dut: {memory: 1 GiB, line: [a], nodes: {a: {}}}",
            "dut.memory: platform bare-metal does not have this key",
        ),
        (
            "dut: {line: [a, b], nodes: {a: {forwarder: testpmd}, b: {}}}",
            "a and b share CPU 1, and forwarder testpmd needs CPUs of its own",
        ),
        (
            "dut: {line: [a, b], nodes: {a: {platform: wire}, b: {}}}",
            "dut.line: platform wire cannot form a line",
        ),
        (
            "dut: {line: [a], nodes: {a: {forwarder: {fault: {holds: 1}}}}}",
            "dut.nodes.a.forwarder.fault.holds: unknown key: did you mean 'hold'",
        ),
    ],
)
def test_what_cannot_form_a_line_is_named(tmp_path: Path, text: str, expected: str) -> None:
    whole = f"name: line\n{text}\n"
    said = complaint(tmp_path, whole if "traffic:" in text else f"{whole}traffic: {{}}\n")
    assert expected in said


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


@pytest.mark.parametrize("dut", [{}, {"line": 3}, {"platform": "wire"}])
def test_without_hops_packets_are_stamped_at_the_ends(dut: dict[str, Any]) -> None:
    [flow] = experiment(dut).graph().flows
    assert [str(port) for port in flow.stamped] == ["tap:tt-a0", "tap:tt-b0"]
    assert [point.before for point in flow.points] == [next(iter(flow.passed), None), None]


@pytest.mark.parametrize(
    ("dut", "expected"),
    [
        ("{taps: hops}", "a single device is one hop: make dut.line 2 or more"),
        ("{taps: hops, platform: wire, line: 3}", "platform wire has no nodes"),
        ("{taps: hops, ports: [a, b]}", "a single device is one hop"),
        ("{taps: queues, ports: [a, b], line: 3}", "choose taps: hops"),
        ("{taps: hops, line: 3, napi: threads}", "choose napi: softirq"),
        ("{taps: each, line: 3}", "wanted: ends or hops or queues"),
    ],
)
def test_where_there_are_no_hops_is_named(tmp_path: Path, dut: str, expected: str) -> None:
    ports = "tap: {ports: [c, d]}\n" if "ports" in dut else ""
    said = complaint(tmp_path, f"name: line\ndut: {dut}\n{ports}traffic: {{}}\n")
    assert expected in said
    assert "dut.taps" in said


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
    "text",
    [
        "dut: {line: 2, forwarder: testpmd, cpus: [1, 2]}",
        "dut: {line: [a, b, a], nodes: {a: {}, b: {forwarder: fault}}}\ntraffic: {ttl: 1}",
        "dut: {line: 63, forwarder: kernel-route}\ntraffic: {}",
        "dut: {line: 64, forwarder: kernel-route}\ntraffic: {ttl: 65}",
        "dut: {line: 64}\ntraffic: {ttl: 1}",
        "dut: {line: 64, platform: wire, forwarder: testpmd}\ntraffic: {ttl: 1}",
    ],
)
def test_what_can(text: str) -> None:
    import yaml

    Experiment.model_validate({"name": "line", "traffic": {}, **yaml.safe_load(text)})


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
