"""Networks of nodes: every flow comes through by its own path, loses nothing, and is a run."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from cases import cases
from forwarders import require
from hypothesis import Phase, given
from hypothesis import strategies as st
from labtools import all_came, check_hops, counts_of, measured, ran, received, record, statuses
from networks import Made, networks

from tailtap.analysis.evaluation import Evaluation
from tailtap.experiment.network import serving
from tailtap.lab.forwarders import FORWARDERS, Setting
from tailtap.lab.generators.model import Traffic
from tailtap.lab.platforms import PLATFORMS, DutSpec, alike, build, graph_of
from tailtap.lab.topology.graph import Node
from tailtap.lab.topology.graphs import FORWARD, dut_names, network
from tailtap.lab.topology.lab import Lab
from tailtap.lab.topology.placement import Placement

PACKETS = {"a": 100, "b": 40}
BRANCHING = """
name: network
dut:
  forwarder: kernel-route
  taps: hops
  nodes: {fw: {forwarder: tc-mirred}, r: {platform: container, count: 2}, last: {}}
  links: [in - fw - r1 - last - out, fw - r2 - out]
  flows:
    a: {path: [in, fw, r1, last, out], rate: 500 pkt/s}
    b: {path: [in, fw, r2, out], rate: 200 pkt/s, size: 256 B}
traffic: {duration: 200 ms, warm_up: 0 s, ip: VERSION, size: 128 B}
vary: {dut.route_by: HOW}
"""
SILENT_SECONDS = 1.5
COLUMNS, ROWS = 4, 3


@pytest.mark.parametrize(("version", "how"), [(4, ["address"]), (6, ["port"])])
def test_flows_that_part_lose_nothing(tmp_path: Path, version: int, how: list[str]) -> None:
    text = BRANCHING.replace("VERSION", str(version)).replace("HOW", f"[{', '.join(how)}]")
    made = measured(tmp_path, text)
    runs = made.runs
    assert statuses(made.out) == ["done"] * 2 * len(how)
    for run, (route_by, flow) in zip(
        runs, [(one, flow) for one in how for flow in PACKETS], strict=True
    ):
        told = record(run)
        assert told["variables"] == {"dut.route_by": route_by, "flow": flow}
        found = counts_of(run)
        assert (found["ingress"], found["matched"], found["lost"]) == (
            PACKETS[flow],
            PACKETS[flow],
            0,
        )
        assert told["forwarder"]["nodes"]["r1"]["route_by"] == route_by
        assert check_hops(run) == (["fw", "r1", "last"] if flow == "a" else ["fw", "r2"])


@cases(6, phases=(Phase.generate,))
@given(
    networks(most_nodes=9, most_flows=4).filter(lambda made: len(made.nodes) > 4),
    st.sampled_from(["address", "port"]),
    st.sampled_from([4, 6]),
    st.data(),
)
def test_any_network_loses_nothing(
    tmp_path_factory: pytest.TempPathFactory,
    made: Made,
    route_by: str,
    version: int,
    data: st.DataObject,
) -> None:
    """Some nodes do not route where their ways leave no choice."""
    plain = network([Node(name, "dut") for name in made.nodes], made.paths)
    free = [name for name in made.nodes if serving(plain.passes(name)) != "flows"]
    bridges = set(data.draw(st.lists(st.sampled_from(free)))) if free else set()
    content = {
        "name": "network",
        "dut": {
            "route_by": route_by,
            "forwarder": "kernel-route",
            "nodes": {name: {"forwarder": "tc-mirred"} if name in bridges else {}
                      for name in made.nodes},
            "links": [f"{one} - {other}" for one, other in made.links]
            + [chain for path in made.paths.values()
               for chain in (f"in - {path[0]}", f"{path[-1]} - out")],
            "flows": {name: {"path": ["in", *path, "out"]} for name, path in made.paths.items()},
        },
        "traffic": {"ip": version, "size": "128 B", "ttl": 255, "flows": 4, "rate": "200 pkt/s",
                    "duration": "200 ms", "warm_up": "0 s"},
    }  # fmt: skip
    found = measured(tmp_path_factory.mktemp("network"), json.dumps(content))
    assert len(found.runs) == len(made.paths)
    assert all(all_came(run, 40) for run in found.runs)


def test_addresses_that_nobody_forwards_are_said(tmp_path: Path) -> None:
    traffic = f"traffic: {{rate: {RATE}, duration: 100 ms, flows: {{dst: 127.0.0.1}}}}"
    made = ran(tmp_path, f"name: none\ndut: {{forwarder: kernel-route}}\n{traffic}\n")
    said = "the kernel does not route 127.0.0.1 from tt-in to tt-out: it says "
    assert said in made.record["error"]


def grid(count: int) -> dict[str, Any]:
    """Twelve routers in a grid, and flows from its left to its right; the papers' study had 38.

    Each flow goes along one row, changes to another one and goes on there.
    """
    node = [[f"r{COLUMNS * row + column + 1}" for column in range(COLUMNS)] for row in range(ROWS)]
    links = [" - ".join(["in", *row, "out"]) for row in node]
    links += [" - ".join(node[row][column] for row in range(ROWS)) for column in range(COLUMNS)]
    flows = {}
    for number in range(count):
        start, end = number % ROWS, (number + number // ROWS) % ROWS
        change = number // ROWS**2 % COLUMNS
        step = 1 if end >= start else -1
        path = node[start][: change + 1]
        path += [node[row][change] for row in range(start + step, end + step, step) if start != end]
        path += node[end][change + 1 :]
        flows[f"f{number + 1}"] = {"path": ["in", *path, "out"]}
    return {
        "name": "grid",
        "dut": {
            "forwarder": "kernel-route",
            "nodes": {"r": {"count": COLUMNS * ROWS}},
            "links": links,
            "flows": flows,
        },
        "traffic": {"rate": "50 pkt/s", "duration": "500 ms", "warm_up": "0 s"},
    }


@pytest.mark.slow
@pytest.mark.parametrize("route_by", ["port", "address"])
def test_many_flows_through_twelve_nodes(tmp_path: Path, route_by: str) -> None:
    content = grid(38)
    content["dut"]["route_by"] = route_by
    made = measured(tmp_path, json.dumps(content), seconds=10 * 60)
    assert len(made.runs) == 38
    nodes = [node for node in made.records[0]["nodes"] if node["task"] == "dut"]
    assert len(nodes) == COLUMNS * ROWS
    assert all(all_came(run, 25) for run in made.runs)


RATE = "500 pkt/s"
SENT = 100


@pytest.mark.parametrize(
    ("platform", "forwarder", "more", "lengths"),
    [
        ("bare-metal", "kernel-route", "", [8]),
        (
            "bare-metal",
            "kernel-route",
            ", ip: 6, size: 128 B, bidirectional: true, flows: {dport: 53-60}",
            [3],
        ),
        pytest.param("bare-metal", "tc-mirred", "", [2], marks=pytest.mark.slow),
        pytest.param("container", "kernel-route", "", [1, 8], marks=pytest.mark.slow),
        pytest.param("bare-metal", "kernel-route", ", ttl: 65", [64], marks=pytest.mark.slow),
        pytest.param("bare-metal", "tc-mirred", "", [64], marks=pytest.mark.slow),
        pytest.param("container", "kernel-route", ", ttl: 65", [32, 64], marks=pytest.mark.slow),
        pytest.param("container", "tc-mirred", "", [32], marks=pytest.mark.slow),
    ],
)
def test_a_line_carries_every_packet(
    tmp_path: Path, platform: str, forwarder: str, more: str, lengths: list[int]
) -> None:
    made = measured(
        tmp_path,
        f"""
name: line
dut: {{platform: {platform}, forwarder: {forwarder}}}
traffic: {{rate: {RATE}, duration: 200 ms, warm_up: 0 s{more}}}
vary: {{dut.line: {lengths}}}
""",
    )
    runs = made.runs
    directions = 2 if "bidirectional" in more else 1
    assert statuses(made.out) == ["done"] * len(lengths) * directions
    for run, length in zip(runs, [n for n in lengths for _ in range(directions)], strict=True):
        told = record(run)
        assert all_came(run, SENT)
        nodes = [node["name"] for node in told["nodes"] if node["task"] == "dut"]
        assert nodes == dut_names(length)
        assert told["parameters"]["dut"]["line"] == length


HELD = [20, 40, 60]
HOLD_NS = 300_000_000
CHAIN = f"""
name: chain
dut:
  taps: hops
  line: [router, box, fault, router]
  nodes:
    router: {{forwarder: kernel-route}}
    fault: {{forwarder: {{fault: {{hold: {{ids: {HELD}, time: {HOLD_NS} ns}}}}}}}}
    box: {{platform: container, memory: 64 MiB, forwarder: tc-mirred}}
traffic: {{rate: {RATE}, duration: 200 ms, warm_up: 0 s, bidirectional: true}}
"""


def test_nodes_of_a_line_differ(tmp_path: Path) -> None:
    """Routers find each other past nodes that do not route, both ways."""
    made = measured(tmp_path, CHAIN)
    there, back = made.runs
    for run in (there, back):
        assert all_came(run, SENT)
    told = record(there)
    nodes = {node["name"]: node["kind"] for node in told["nodes"] if node["task"] == "dut"}
    assert nodes == {"router1": "namespace", "box": "container", "fault": "namespace",
                     "router2": "namespace"}  # fmt: skip
    memory = told["platform"]["nodes"]["box"]["cgroup"]["memory"]
    assert memory["memory.limit_in_bytes" if memory["version"] == 1 else "memory.max"] == 64 << 20
    assert told["forwarder"]["nodes"]["fault"]["held"] == len(HELD)
    assert told["traits"]["virtualization"] == "container"
    evaluation = Evaluation.load(there / "evaluation")
    late = {int(packet.key) for packet in evaluation.worst(SENT) if packet.latency >= HOLD_NS}
    assert late >= set(HELD)
    # The fault in the third hop is found in the third hop.
    hops = evaluation.hops
    assert hops is not None
    for place, packet in enumerate(evaluation.worst(SENT)):
        if int(packet.key) in HELD:
            taken = hops.of_packet(place)
            assert sum(one or 0 for one in taken) == packet.latency
            assert (taken[2] or 0) >= HOLD_NS
            assert max(one or 0 for one in (*taken[:2], taken[3])) < HOLD_NS


@pytest.mark.usefixtures("huge_pages")
@pytest.mark.parametrize(
    "program", ["dpdk-l3fwd", pytest.param("testpmd: {mode: mac}", marks=pytest.mark.slow)]
)
def test_a_program_that_sets_addresses_sends_to_the_next_router(
    tmp_path: Path, program: str
) -> None:
    """The kernel takes no packets that are addressed to somebody else."""
    require(program.partition(":")[0])
    form = f"{{{program}}}" if ":" in program else program
    text = f"""
name: program
dut:
  cpus: [0, 1]
  line: [program, kernel]
  nodes:
    program: {{forwarder: {form}, cpus: [1]}}
    kernel: {{forwarder: kernel-route, cpus: [0]}}
traffic: {{rate: {RATE}, duration: 200 ms, warm_up: 0 s, cpu: 0}}
"""
    made = measured(tmp_path, text)
    run = made.run
    assert all_came(run, SENT)


@pytest.mark.parametrize("version", [pytest.param(4, marks=pytest.mark.slow), 6])
def test_a_line_is_silent_and_merges_no_packets(tmp_path: Path, version: int) -> None:
    """Nobody resolves, announces or looks for anything while no packets are sent."""
    platform, forwarder = PLATFORMS["bare-metal"], FORWARDERS["kernel-route"]
    devices = alike(platform, DutSpec((0,), platform.Options(), placement=Placement((0,))), 3)
    traffic = Traffic.model_validate({"ip": version, "size": "128 B"})
    with Lab(graph_of(devices)) as lab:
        made = build(lab, devices)
        lab.wait_until_up()
        watching = lab.watch()
        for device in made:
            forwarder.start(
                device, forwarder.Options(), Setting(lab, tmp_path, {FORWARD: traffic})
            ).close()
        settled = {port: received(lab, port) for port in lab.graph.ports}
        time.sleep(SILENT_SECONDS)
        assert {port: received(lab, port) for port in lab.graph.ports} == settled
        assert not any(settled.values()), "packets of nobody"
        news = [line for one in watching for line in one.read_available() or ()]
        for one in watching:
            one.close()
        # A port that takes on an address tells so; no link comes or goes.
        assert not [line for line in news if lab.deleted_port(line)]
        for device in made:
            for port in (device.ingress, device.egress):
                shown = device.host.run(["ethtool", "-k", port]).stdout
                assert "generic-receive-offload: off" in shown
                assert "rx-udp-gro-forwarding: on" not in shown
