"""`dut.over`: what it makes of a line, and what cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tailtap.base.errors import InputError
from tailtap.experiment.model import Experiment
from tailtap.experiment.reading import read_experiment
from tailtap.host.cpu.cpus import Numa
from tailtap.host.net.cards import Card
from tailtap.host.net.virtual_functions import VirtualFunction, VirtualFunctions
from tailtap.lab.topology.compiler import compile_graph, in_order
from tailtap.lab.topology.numbering import DESTINATION_MAC, LEAVING_MAC
from tailtap.records.run import Function

SRIOV = {"sriov": ["ens1f0", "ens1f1"]}
TRAFFIC = {"rate": "1 kpkt/s", "duration": "1 s"}


def experiment(**dut: Any) -> Experiment:
    dut = {"forwarder": "kernel-route", "over": SRIOV, **dut}
    return Experiment.model_validate({"name": "over", "dut": dut, "traffic": TRAFFIC})


def test_links_between_nodes_are_over_the_cable() -> None:
    channels = experiment(line=7).graph().channels
    assert [channel.record().vlan for channel in channels] == [2, 3, 4, 5, 6, 7]
    assert experiment(line=7, over="veth").graph().channels == []
    assert experiment(line=1).graph() == experiment(line=1, over="veth").graph()


def test_links_of_a_network_are_over_the_cable() -> None:
    links = ["in - r1 - r2 - out", "r1 - r3 - out"]
    flows = {"a": {"path": ["in", "r1", "r2", "out"]}, "b": {"path": ["in", "r1", "r3", "out"]}}
    made = experiment(nodes={"r": {"count": 3}}, links=links, flows=flows, irq="none")
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


def test_a_run_tells_what_it_was_over() -> None:
    made = experiment(line=2, queues=1)
    assert made.parameters()["dut"]["over"] == SRIOV
    assert Experiment.model_validate(made.document()) == made


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{line: 2, forwarder: kernel-route, over: {sriov: [a, a]}}",
         ("dut.over.sriov: packets between functions of one card pass no cable: name two cards "
         "that one joins")),
        ("{line: 2, forwarder: tc-mirred, over: {sriov: [a, b]}}",
         ("dut.over: a network card gives a virtual function only what is addressed to it, and "
         "dut1 is no router: make kernel-route or nat or nftables or dpdk-l3fwd its forwarder, or "
         "leave dut.over out")),
        ("{line: 2, forwarder: kernel-route, taps: hops, over: {sriov: [a, b]}}",
         ("dut.taps: a packet that comes from a cable is received long after it was handed over, "
         "and nothing tells when that was: choose taps: ends, or leave dut.over out")),
        ("{forwarder: kernel-route, functions: true}",
         ("dut.functions: links of the lab have no virtual functions: name network cards with "
         "dut.ports, measure on a testbed, or leave it out")),
        ("{line: 2, forwarder: kernel-route, queues: 1}",
         ("dut.queues: links of the lab have one queue: name network cards with dut.ports or "
         "dut.over, measure on a testbed, or leave it out")),
    ],
)  # fmt: skip
def test_what_cannot_be_is_named(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "over.yaml"
    path.write_text(f"name: over\ndut: {text}\ntraffic: {{rate: 1 kpkt/s, duration: 1 s}}\n")
    with pytest.raises(InputError) as error:
        read_experiment(path)
    assert f"over.yaml:2: {expected}" in str(error.value)


def test_what_no_router_addresses_anew_comes_by_functions_one_way_only() -> None:
    assert by_functions(forwarder="tc-mirred").graph().functions
    with pytest.raises(ValidationError, match="take one direction, or a forwarder that routes"):
        by_functions(forwarder="tc-mirred", both_ways=True)
