"""Networks of nodes: every flow comes through by its own path, loses nothing, and is a run."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from labtools import all_came, measured, record, stamps, statuses

from tailtap.experiment.model import Experiment
from tailtap.lab.forwarders import FORWARDERS, Setting
from tailtap.lab.platforms import build
from tailtap.lab.topology.lab import Lab

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


def counts(run: Path) -> dict[str, int]:
    found: dict[str, int] = json.loads((run / "evaluation/evaluation.json").read_text())["counts"]
    return found


@pytest.mark.parametrize(("version", "how"), [(4, ["address"]), (6, ["port"])])
def test_flows_that_part_lose_nothing(tmp_path: Path, version: int, how: list[str]) -> None:
    """Both by address and by port, through a bridge, containers and a namespace."""
    text = BRANCHING.replace("VERSION", str(version)).replace("HOW", f"[{', '.join(how)}]")
    made = measured(tmp_path, text)
    runs = made.runs
    assert statuses(made.out) == ["done"] * 2 * len(how)
    for run, (route_by, flow) in zip(
        runs, [(one, flow) for one in how for flow in PACKETS], strict=True
    ):
        told = record(run)
        assert told["variables"] == {"dut.route_by": route_by, "flow": flow}
        found = counts(run)
        assert (found["ingress"], found["matched"], found["lost"]) == (
            PACKETS[flow],
            PACKETS[flow],
            0,
        )
        assert told["forwarder"]["nodes"]["r1"]["route_by"] == route_by
        check_hops(run, ["fw", "r1", "last"] if flow == "a" else ["fw", "r2"])


@pytest.mark.parametrize(
    ("version", "route_by"), [(4, "port"), pytest.param(6, "address", marks=pytest.mark.slow)]
)
def test_a_network_is_silent(tmp_path: Path, version: int, route_by: str) -> None:
    """Nobody resolves, announces or looks for anything while no packets are sent."""
    content = yaml.safe_load(BRANCHING.replace("VERSION", str(version)))
    content["dut"]["nodes"]["r"]["platform"] = "bare-metal"
    del content["vary"]
    content["dut"]["route_by"] = route_by
    experiment = Experiment.model_validate(content)
    sent = {flow: experiment.traffic_of(flow) for flow in experiment.flows}
    devices = experiment.devices()
    with Lab(experiment.graph()) as lab:
        made = build(lab, devices)
        lab.wait_until_up()
        setting = Setting(lab, tmp_path, sent, experiment.dut.routing, in_line=True)
        for device, member in zip(made, experiment.dut.members, strict=True):
            chosen = FORWARDERS[member.dut.forwarder]
            chosen.start(device, chosen.Options(), setting).close()
        time.sleep(SILENT_SECONDS)
        heard = {port: lab.received(port) for port in lab.graph.ports}
        assert not any(heard.values()), heard


def check_hops(run: Path, nodes: list[str]) -> None:
    """The hops of every packet add up to its latency, by captures that are read here."""
    points: list[Any] = record(run)["instruments"]["taps"]["points"]
    assert [point["before"] for point in points] == [*nodes, None]
    captures = [stamps(run / point["file"]) for point in points]
    times = np.array([capture["time_ns"][np.argsort(capture["id"])] for capture in captures])
    assert (np.diff(times.astype(np.int64), axis=0) > 0).all()
    hops = json.loads((run / "evaluation/evaluation.json").read_text())["worst"]
    assert all(sum(packet["hops"]) == packet["latency"] for packet in hops)


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
