"""`dut.over`: what it makes of a line, and what cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tailtap.experiment.model import Experiment
from tailtap.experiment.reading import read_experiment
from tailtap.records.errors import InputError

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
