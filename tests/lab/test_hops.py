"""A line hop by hop: the hops of every packet add up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from labtools import all_came, check_hops, measured, record
from program import tailtap

from tailtap.analysis.causes import explain_runs
from tailtap.analysis.evaluation.values import DEFAULT

BOOT_SECONDS = 10 * 60

PLAIN = """
name: hops
dut: {{platform: {platform}, forwarder: {forwarder}, taps: hops}}
traffic: {{rate: 1 kpkt/s, duration: 300 ms, warm_up: 50 ms{more}}}
vary: {{dut.line: {lengths}}}
"""


@pytest.mark.parametrize(
    ("platform", "forwarder", "more", "lengths"),
    [
        ("bare-metal", "kernel-route", "", [3]),
        pytest.param(
            "bare-metal", "tc-mirred", ", bidirectional: true", [3], marks=pytest.mark.slow
        ),
        pytest.param("container", "kernel-route", "", [2], marks=pytest.mark.slow),
        pytest.param("bare-metal", "kernel-route", ", ttl: 65", [64], marks=pytest.mark.slow),
    ],
)
def test_the_hops_of_every_packet_add_up(
    tmp_path: Path, platform: str, forwarder: str, more: str, lengths: list[int]
) -> None:
    text = PLAIN.format(platform=platform, forwarder=forwarder, more=more, lengths=lengths)
    made = measured(tmp_path, text, "--json")
    told = made.said
    directions = 2 if "bidirectional" in more else 1
    assert len(told) == len(lengths) * directions
    for run in told:
        length = run["parameters"]["dut"]["line"]
        assert all_came(Path(run["folder"]), 300)
        hops = run["evaluation"]["hops"]
        assert [(row["hop"], row["counts"]["matched"]) for row in hops] == [
            (number, 300) for number in range(1, length + 1)
        ]
        nodes = [f"dut{number}" for number in range(1, length + 1)]
        back = run["variables"].get("direction") == "reverse"
        assert [row["node"] for row in hops] == (nodes[::-1] if back else nodes)
        assert check_hops(Path(run["folder"])) == [row["node"] for row in hops]
        assert [row["p"] for row in hops[0]["latency_ns"]["percentiles"]] == list(DEFAULT)
        assert "taps-within" in [warning["code"] for warning in run["warnings"]]
    again = json.loads(tailtap("evaluate", made.out, "--json").stdout)["runs"]
    assert [run["evaluation"] for run in again] == [run["evaluation"] for run in told]


QUEUES = """
name: queues
dut:
  cpus: [1]
  forwarder: kernel-route
  taps: queues
  line: [one, box, last]
  nodes: {one: {}, box: {platform: container}, last: {forwarder: tc-mirred}}
traffic: {rate: 1 kpkt/s, duration: 300 ms, warm_up: 50 ms, cpu: 0, bidirectional: true}
trace: thin
"""


def test_the_queues_before_nodes_are_hops_of_their_own(tmp_path: Path) -> None:
    made = measured(tmp_path, QUEUES, "--json")
    there, back = made.said
    for run, path in ((there, ["one", "box", "last"]), (back, ["last", "box", "one"])):
        assert all_came(Path(run["folder"]), 300)
        check_hops(Path(run["folder"]))
        hops = run["evaluation"]["hops"]
        assert [(row["node"], row["part"]) for row in hops] == [
            (node, part) for node in path for part in ("queue", "node")
        ]
    # What serves a node also serves its queue.
    for found, first in zip(explain_runs([made.out], late="p90"), ("one", "last"), strict=True):
        [way] = found.joined.segments
        assert (way.nodes[0], len(way.nodes)) == (first, 3)


CHAIN = """
name: chain
dut:
  cpus: [1]
  forwarder: kernel-route
  taps: hops
  line: [box, guest, last]
  nodes:
    box: {platform: container}
    guest: {platform: vm, memory: 384 MiB}
    last: {forwarder: tc-mirred}
traffic: {rate: 200 pkt/s, duration: 500 ms, warm_up: 0 s, cpu: 0}
trace: thin
"""
GUESTS = """
name: guests
dut:
  cpus: [1]
  platform: vm
  memory: 384 MiB
  forwarder: tc-mirred
  taps: hops
  nodes: {a: {forwarder: kernel-route}, b: {}, r: {platform: bare-metal, forwarder: kernel-route}}
  links: [in - a - b - out, a - r - out]
  flows:
    one: {path: [in, a, b, out], rate: 100 pkt/s}
    two: {path: [in, a, r, out], rate: 100 pkt/s}
traffic: {duration: 1 s, warm_up: 0 s, cpu: 0}
trace: thin
"""


@pytest.mark.slow
@pytest.mark.usefixtures("guest_kernels")
@pytest.mark.parametrize(
    ("text", "paths"),
    [
        (CHAIN, [["box", "guest", "last"]]),
        (GUESTS, [["a", "b"], ["a", "r"]]),
    ],
    ids=["chain", "guests"],
)
def test_hops_through_virtual_machines_add_up(
    tmp_path: Path, text: str, paths: list[list[str]]
) -> None:
    """Links of containers, guests and namespaces carry every packet."""
    made = measured(tmp_path, text, seconds=BOOT_SECONDS)
    for run, path in zip(made.runs, paths, strict=True):
        assert all_came(run, 100) and check_hops(run) == path
        told = record(run)
        kinds = {node["name"]: node["kind"] for node in told["nodes"] if node["task"] == "dut"}
        assert "guest" in {kinds[name] for name in path}
        assert told["traits"] == {
            "has_dut": True,
            "own_kernel": True,
            "virtualization": "machine",
        }
        # A guest among other nodes is traced from here: by the threads that are its CPUs.
        served = {row["node"]: row for row in told["trace"]["served"]}
        by = {"guest": "vcpu"}
        assert {name: row["by"] for name, row in served.items()} == {
            name: by.get(kind, "softirq") for name, kind in kinds.items()
        }
        assert all(row["pids"] for row in served.values() if row["by"] == "vcpu")
    for found, path in zip(explain_runs([made.out], late="p90"), paths, strict=True):
        assert [way.nodes for way in found.joined.segments] == [tuple(path)]
        assert found.joined.state.size >= 9
