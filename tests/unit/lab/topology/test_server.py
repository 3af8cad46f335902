"""The graph of a DuT that answers, what is made of it, and how its taps are typed."""

from __future__ import annotations

from collections.abc import Sequence

from tailtap.host.changes.kernel_values import KernelValue
from tailtap.host.cpu.cpus import Numa
from tailtap.host.net.namespaces import Link
from tailtap.lab.instruments.taps.inline import InlineTap
from tailtap.lab.instruments.taps.links import parse_link
from tailtap.lab.topology.compiler import compile_graph
from tailtap.lab.topology.graph import Graph, Node, Port
from tailtap.lab.topology.graphs import FORWARD, served, smallest
from tailtap.lab.topology.numbering import ways


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
    assert sum(isinstance(one, Link) for one in made) == 2
    steered = {one.paths[0]: one.value for one in made if isinstance(one, KernelValue)}
    assert steered == {
        "/sys/class/net/tt-gen/queues/rx-*/rps_cpus": "00000001",
        "/sys/class/net/tt-in/queues/rx-*/rps_cpus": "00000002",
    }


def test_taps_hand_on_both_ways() -> None:
    typed = [str(link) for link in InlineTap().links(graph().flow(FORWARD), {})]
    assert typed == ["ingress=tt-a0:dev:tt-a1", "egress=tt-a1@arrival:dev:tt-a0"]
    assert [str(parse_link(text)) for text in typed] == typed
