"""What a trace is asked for, as far as the experiment says it."""

from __future__ import annotations

from typing import Any

import pytest

from tailtap.experiment.model import Experiment
from tailtap.host.cpu.cpus import Numa
from tailtap.measure.roles.foresee import is_steered, packets_of, spare_of


def experiment(dut: dict[str, Any], **traffic: Any) -> Experiment:
    sent = {"rate": "10 kpkt/s", "duration": "1 s", "cpu": 0, **traffic}
    return Experiment.model_validate({"name": "a", "traffic": sent, "dut": {"cpus": [1], **dut}})


@pytest.mark.parametrize(
    ("dut", "steered"),
    [
        ({"forwarder": "tc-mirred"}, True),
        ({"forwarder": "kernel-route"}, True),
        ({"forwarder": "kernel-route", "platform": "container"}, True),
        ({"forwarder": "kernel-route", "cpus": [1, 2]}, True),
        ({"forwarder": "xdp"}, False),  # drivers pass its packets on
        ({"forwarder": "fault"}, False),  # a program serves
        ({"forwarder": "tc-mirred", "irq": "none"}, False),  # wherever the kernel does it
        ({"forwarder": "tc-mirred", "napi": "threads"}, False),
        ({"forwarder": "tc-mirred", "line": 2}, False),  # one node raises the softirq of the next
        ({"forwarder": "kernel-route", "platform": "vm"}, False),  # its own kernel serves
    ],
)
def test_packets_are_steered_where_the_kernel_forwards_on_one_node(
    dut: dict[str, Any], steered: bool
) -> None:
    """By calls of other CPUs alone: not where a softirq is raised otherwise, or a thread serves."""
    asked = experiment(dut)
    assert is_steered(asked, asked.graph(), Numa.of({})) is steered


def test_a_sender_on_the_device_s_cpu_calls_nobody() -> None:
    """It raises the softirq itself."""
    asked = experiment({"forwarder": "tc-mirred", "cpus": [0, 1]})
    assert not is_steered(asked, asked.graph(), Numa.of({}))


def test_a_spare_cpu_is_nobody_s() -> None:
    """Neither the generator's, nor the device's, nor a neighbour's."""
    asked = experiment({"forwarder": "tc-mirred"})
    assert spare_of(asked, range(4)) == 3
    assert spare_of(asked, range(2)) is None
    assert packets_of(asked) >= 10_000
