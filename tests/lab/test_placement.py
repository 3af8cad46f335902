"""Where the receive work of a DuT on the lab's links is done, as the kernel counts it.

Packets are received three times on their way: by the ingress tap's port on the generator's
CPU, by the DuT's port where `dut.irq` says, and by the egress tap's on the CPU that forwards.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from labtools import Machine, own_machine, record, was_made, write_experiment
from program import tailtap

from tailtap.lab.platforms import PLATFORMS

PACKETS = 1000
WARM_UP = 100
EXPERIMENT = """\
name: placement
dut: {cpus: [1]}
traffic:
  {rate: 2 kpkt/s, duration: 500 ms, warm_up_packets: 100, cpu: 0, slip_limit: 10 s}
cases:
- {dut.irq: none, dut.cpus: [1], dut.napi: softirq}
- {dut.irq: core, dut.cpus: [1], dut.napi: softirq}
- {dut.irq: [1], dut.cpus: [0], dut.napi: softirq}
- {dut.irq: node, dut.cpus: [1], dut.napi: threads}
"""
THREADS = "for f in /proc/[0-9]*/comm; do grep -s ^napi/tt-in $f; done; true"


def counted(run: dict[str, Any], cpu: int, name: str = "processed") -> int:
    return int(run["softnet"][str(cpu)][name])


def codes(run: dict[str, Any]) -> set[str]:
    return {row["code"] for row in run["warnings"]} & {"work-elsewhere", "shared-cpu"}


@pytest.mark.alone
def test_packets_are_received_where_the_experiment_says(machine: Machine, tmp_path: Path) -> None:
    path = write_experiment(tmp_path, EXPERIMENT)
    sent = PACKETS + WARM_UP
    for attempt in range(3):
        out = tmp_path / f"out{attempt}"
        done = tailtap("run", path, "--out", out, timeout=400, beside=machine.pid)
        assert was_made(done), done.stderr
        runs = [record(run) for run in sorted((out / "runs").iterdir())]
        # Counters are the whole machine's: with much more in them they tell nothing of ours.
        if all(sum(counted(run, cpu) for cpu in (0, 1)) < 4 * sent for run in runs):
            break
    else:
        pytest.skip("other programs here keep receiving thousands of packets a second")
    none, core, listed, node = runs
    # Where the kernel puts it is where the packets come from: the generator's CPU.
    assert counted(none, 0) >= 3 * sent
    assert counted(none, 1) < sent
    assert codes(none) == {"work-elsewhere"}
    assert none["placement"]["ports"] == {"tt-in": {"cpus": []}}
    # The DuT's own, or the one that is listed, though the DuT is said to be on another.
    for run in (core, listed):
        assert counted(run, 0) < 2 * sent
        assert counted(run, 1) >= 2 * sent
        assert counted(run, 1, "received_rps") > 0  # steered there by interrupts
        assert run["placement"]["ports"] == {"tt-in": {"cpus": [1]}}
    assert codes(core) == set()
    assert codes(listed) == {"shared-cpu"}
    # A thread polls there, without any steering. CPU 0 keeps the housekeeping.
    assert node["placement"]["ports"]["tt-in"]["cpus"] == sorted(
        cpu for cpu in os.sched_getaffinity(0) if cpu != 0
    )
    assert counted(node, 0) < 2 * sent
    assert counted(node, 1, "received_rps") == 0
    assert codes(node) == set()
    assert [run["nodes"][2]["placement"] for run in (none, listed, node)] == [
        {"irq": "none", "napi": "softirq"},
        {"irq": [1], "napi": "softirq"},
        {"irq": "node", "napi": "threads"},
    ]
    assert machine.run("sh", "-c", THREADS).stdout == ""  # they end with their port
    told = json.loads(machine.tailtap("compare", str(out), "--json", "--quiet").stdout)
    labels = {one["label"] for load in told["loads"] for one in load["configurations"]}
    assert "irq none · [1] · napi softirq" in labels
    assert "irq [1] · [0] · napi softirq" in labels


OBSERVED_EXPERIMENT: Mapping[str, Any] = {
    "name": "observed",
    "dut": {"cpus": [1]},
    "traffic": {"rate": "2 kpkt/s", "duration": "200 ms", "warm_up": "50 ms", "cpu": 0},
}
OBSERVED: Mapping[str, Any] = {
    "trace": "full",
    "counters": True,
    "interrupts": {"counters": {"period": "10 ms"}},
}
NEIGHBOURS: Mapping[str, Any] = {"batch": {"cpu": {"cpus": [1], "busy": 20}}}
LINE: Mapping[str, Any] = {"line": 2, "irq": [1]}
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "neighbours": {"neighbours": NEIGHBOURS},
    "line": LINE,
    "hops": {**LINE, "taps": "hops"},
    "queues": {**LINE, "taps": "queues"},
    "tuning": {"tuning": ["timers"]},
    "tuning-full": {"tuning": "full"},
    "boot": {"boot": "quiet"},
    "threads": {"napi": "threads"},
    "elsewhere": {"irq": "none"},
    "xdp": {"forwarder": "xdp"},
    "kernel-route": {"forwarder": "kernel-route"},
    "fault": {"forwarder": "fault"},
}
"""Keys of `dut`, each set with everything observed."""
LOADS: Mapping[str, Mapping[str, Any]] = {
    "both ways": {"bidirectional": True},
    "af_xdp": {"generator": "af_xdp"},
    "bursts": {"pattern": {"kind": "burst", "packets": 4}},
}


def accepted(
    folder: Path, dut: Mapping[str, Any], traffic: Mapping[str, Any], platforms: Sequence[str]
) -> tuple[dict[str, Any], list[Path]]:
    """What a check says, and the run folders of what it accepts: none where it refuses."""
    content = {
        **OBSERVED_EXPERIMENT,
        **OBSERVED,
        "dut": {**OBSERVED_EXPERIMENT["dut"], **dut},
        "traffic": {**OBSERVED_EXPERIMENT["traffic"], **traffic},
        "vary": {"dut.platform": list(platforms)},
    }
    path = write_experiment(folder, yaml.safe_dump(content))
    with own_machine() as machine:
        checked = machine.tailtap("run", str(path), "--check", "--json")
        if checked.returncode != 0:
            assert checked.returncode in (2, 3), checked.stderr
            return {}, []
        done = machine.tailtap("run", str(path), "--out", str(folder / "out"))
        assert was_made(done), done.stderr
        assert machine.namespaces() == []
    return json.loads(checked.stdout), sorted((folder / "out/runs").iterdir())


def test_a_run_without_a_device_is_made_without_a_trace(tmp_path: Path) -> None:
    outlook, folders = accepted(tmp_path, OPTIONS["neighbours"], {}, ["wire", "bare-metal"])
    notes = [[note["message"] for note in run["notes"]] for run in outlook["runs"]]
    assert [note.partition(":")[0] for note in notes[0]] == ["trace", "counters"]
    assert all(note.endswith("this run is made without it") for note in notes[0])
    [room] = notes[1]
    assert room.startswith("trace: ") and "records of each CPU" in room
    wire, device = folders
    said = [row["message"] for row in record(wire)["warnings"] if row["code"] == "no-device"]
    assert said == notes[0]
    assert not [row for row in record(device)["warnings"] if row["code"] == "no-device"]
    assert (device / "trace.events").stat().st_size
    assert not (wire / "trace.events").exists()
    for folder in folders:
        assert record(folder)["status"] == "done"
        assert record(folder)["interrupts"] is not None


@pytest.mark.slow
@pytest.mark.parametrize("platform", sorted({*PLATFORMS} - {"runc"}))  # crun's twin
@pytest.mark.parametrize("option", [*OPTIONS, *LOADS])
def test_what_a_check_accepts_runs(tmp_path: Path, platform: str, option: str) -> None:
    _, folders = accepted(tmp_path, OPTIONS.get(option, {}), LOADS.get(option, {}), [platform])
    for folder in folders:
        assert record(folder)["status"] == "done"
