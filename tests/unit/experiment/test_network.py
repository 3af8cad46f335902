"""`dut.links`, `dut.flows`: which ways there are, what is sent where, and what cannot be."""

from __future__ import annotations

import json
import time
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import yaml
from cases import cases
from experiment_files import check, complaint
from hypothesis import given
from networks import Made, networks

from tailtap.experiment.model import Experiment
from tailtap.experiment.network import IN, OUT, joined, simple_ways
from tailtap.experiment.plan import make_plan
from tailtap.lab.topology.graphs import FORWARD

BRANCHING: dict[str, Any] = {
    "forwarder": "kernel-route",
    "nodes": {"fw": {"forwarder": "tc-mirred"}, "r": {"platform": "container", "count": 3}},
    "links": ["in - fw - r1 - r2 - out", "fw - r3 - out"],
    "flows": {
        "a": {"path": ["in", "fw", "r1", "r2", "out"], "rate": "2 kpkt/s"},
        "b": {"path": ["in", "fw", "r3", "out"], "size": "256 B", "pattern": "poisson"},
    },
}
ROUTED: dict[str, Any] = {**BRANCHING, "nodes": {"fw": {}, "r": {"count": 3}}}


def experiment(dut: dict[str, Any], **traffic: Any) -> Experiment:
    return Experiment.model_validate({"name": "network", "dut": dut, "traffic": traffic})


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


def test_without_a_dut_flows_go_from_tap_to_tap() -> None:
    nodes = {"fw": {}, "r": {"count": 3}}
    made = experiment({**BRANCHING, "nodes": nodes, "platform": "wire"})
    assert [flow.passed for flow in made.graph().flows] == [[], []]


def test_a_document_gives_the_same_experiment() -> None:
    made = experiment(BRANCHING, warm_up_packets=7)
    again = Experiment.model_validate(made.document())
    assert again.graph() == made.graph()
    assert [again.traffic_of(name) for name in again.flows] == [
        made.traffic_of(name) for name in made.flows
    ]


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


def said(tmp_path: Path, changes: dict[str, Any], **traffic: Any) -> str:
    content = {"name": "n", "dut": {**ROUTED, **changes}, "traffic": traffic}
    return complaint(tmp_path, yaml.safe_dump(content, sort_keys=False))


PATH = ["in", "fw", "r3", "out"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"line": 2}, "dut.links: dut.line says which nodes there are already"),
        ({"links": ["in - fw - rr - out"]}, "dut.links: dut.nodes has no rr: known: fw, r1"),
        ({"links": ["in fw out"]}, "dut.links[0]: 'in fw out' joins no nodes: write names with"),
        ({"links": ["fw - in - r1"]}, "in only begins such a chain"),
        ({"links": ["in - out"]}, "in and out cannot be joined"),
        ({"links": ["in - fw - fw - out"]}, "fw and fw cannot be joined"),
        ({"flows": {"a": {}}}, "dut.flows.a: there are several ways, in - fw - r1 - r2 - out and"),
        ({"flows": {}}, "dut.links: there are several ways"),
        ({"links": ["fw - r1 - out"], "flows": {"a": {}}}, "no links lead from in to out"),
        ({"flows": {"a": {"path": ["in", "r1", "out"]}}}, "a.path: no link joins in and r1: from"),
        ({"flows": {"a": {"path": ["fw", "out"]}}}, "dut.flows.a.path: write the names of nodes"),
        ({"flows": {"a": {"path": ["in", ["fw"], "out"]}}}, "a.path: write the names of nodes"),
        ({"flows": {"a": {"path": "fw"}}}, "dut.flows.a.path: write the names of nodes"),
        (
            {"flows": {"a": {"path": ["in", "fw", "r1", "fw", "r3", "out"]}}},
            "dut.flows.a.path: fw is there twice",
        ),
        ({"flows": {"a": {"path": PATH, "rat": 1}}}, "dut.flows.a.rat: unknown key: did you mean"),
        (
            {"flows": {"a": {"path": PATH, "duration": "1 s"}}},
            "dut.flows.a.duration: all flows have this key in common",
        ),
        ({"flows": {"a": {"path": PATH, "rate": "fast"}}}, "dut.flows.a.rate: 'fast'"),
        (
            {"flows": {"a": {"path": PATH, "size": "9 B"}}},
            "dut.flows.a.size: 9 B is no Ethernet frame",
        ),
        ({"flows": {"a": {"path": PATH, "ttl": 2}}}, "dut.flows.a.ttl: packets with a time"),
        ({"flows": {"A": {"path": PATH}}}, "write at most 24 small letters"),
        ({"nodes": {"fw": {}, "r": {"count": 0}}}, "dut.nodes.r.count: this is a number from 1"),
        ({"nodes": {"fw": {}, "r": {"count": "3"}}}, "dut.nodes.r.count: this is a number from 1"),
        (
            {"nodes": {"fw": {}, "r": {"count": 3}, "r2": {}}},
            "dut.nodes: something else is called r2",
        ),
        (
            {"nodes": {"in": {}, "r": {"count": 3}}},
            "dut.nodes: something else is called in",
        ),
        (
            {"nodes": {"fw": {}, "r": {"count": 3, "platform": "wire"}}},
            "dut.links: platform wire cannot form a line",
        ),
        ({"irq": "core"}, "dut.irq: core gives each node a core of its own"),
        ({"taps": "hops", "napi": "threads"}, "choose napi: softirq"),
    ],
)
def test_what_is_no_network_is_named(
    tmp_path: Path, changes: dict[str, Any], expected: str
) -> None:
    assert expected in said(tmp_path, changes)


def test_what_flows_have_in_common_is_checked_as_well(tmp_path: Path) -> None:
    assert "traffic.bidirectional: a network has a flow for" in said(
        tmp_path, {}, bidirectional=True
    )
    assert "a and b go to the same address, by which fw cannot tell them apart" in said(
        tmp_path, {}, flows={"dst": "10.1.0.1"}
    )
    assert "a and b go to the same UDP port" not in said(
        tmp_path, {"route_by": "address"}, flows={"dport": "53", "dst": "10.1.0.1"}
    )
    assert "traffic.ttl: packets with a time to live of 3 end before" in said(tmp_path, {}, ttl=3)


def test_by_port_only_what_comes_in_together_is_told_apart(tmp_path: Path) -> None:
    """Rules are of a port: two flows with ends of their own may have the same UDP port."""
    sent = {"dport": "53"}
    experiment({**ROUTED, "route_by": "port"}, flows=sent)
    shared = {
        "a": {"path": ["in", "fw", "r1", "r2", "out"]},
        "b": {"path": ["in", "fw", "r1", "out"]},
    }
    changes = {
        "route_by": "port",
        "flows": shared,
        "links": ["in - fw - r1 - r2 - out", "r1 - out"],
    }
    assert "a and b go to the same UDP port, by which r1" in said(tmp_path, changes, flows=sent)


@pytest.mark.parametrize(
    ("node", "paths", "expected"),
    [
        ("testpmd", [["fw", "r1"], ["fw", "r2"]], "fw has 4 ports, which forwarder testpmd cannot"),
        ("tc-mirred", [["r1", "fw"], ["r1", "fw"]], "fw sends packets of to-r1 more than one way"),
        ("tc-mirred", [["fw", "r1"], ["fw", "r1"]], None),
        ("xdp", [["fw", "r1"], ["fw", "r2"]], None),
        ("suricata", [["fw", "r1"]], None),
    ],
)
def test_a_node_branches_as_far_as_its_forwarder_can(
    tmp_path: Path, node: str, paths: list[list[str]], expected: str | None
) -> None:
    dut = {
        "cpus": [1, 2, 3],
        "irq": "none",
        "nodes": {
            "fw": {"forwarder": node, "cpus": [1]},
            "r": {"forwarder": "kernel-route", "count": 2, "cpus": [2]},
        },
        "links": ["in - fw - r1 - out", "fw - r2 - out", "in - r1", "fw - out"],
        "flows": {f"f{n}": {"path": ["in", *path, "out"]} for n, path in enumerate(paths)},
    }
    content = {"name": "n", "dut": dut, "traffic": {}}
    if expected is None:
        Experiment.model_validate(content)
    else:
        message = complaint(tmp_path, yaml.safe_dump(content, sort_keys=False))
        assert expected in message
        assert "kernel-route" in message.partition(": take ")[2]


def test_hops_are_where_no_two_flows_are_stamped(tmp_path: Path) -> None:
    graph = experiment({**ROUTED, "taps": "hops"}).graph()
    assert [[point.before for point in flow.points] for flow in graph.flows] == [
        ["fw", "r1", "r2", None],
        ["fw", "r3", None],
    ]
    shared = {"a": {"path": PATH}, "b": {"path": [*PATH]}}
    assert "a and b both enter r3 at to-fw, where a tap cannot tell them apart" in said(
        tmp_path, {"taps": "hops", "flows": shared}
    )
