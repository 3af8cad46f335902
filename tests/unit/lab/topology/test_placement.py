"""What crosses from one NUMA node to another is named; which queue sends for whom."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_machines import unpacked

from tailtap.host.cpu.cpus import Numa
from tailtap.lab.topology.placement import Placed, Placement, cpus_of, crossings, facts, send_queues

CARDS = {
    "intel-two-sockets": "ens1f0",
    "amd-epyc-four-nodes": "enp1s0f0np0",
    "raspberry-pi-4": "eth0",
    "cloud-vm": "eth0",
}


@pytest.fixture(params=sorted(CARDS))
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Numa]:
    name: str = request.param
    return name, Numa.of([CARDS[name]], unpacked(name, tmp_path))


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
    assert cpus_of(Placement("node"), (1,), CARDS[name], numa) == expected


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
