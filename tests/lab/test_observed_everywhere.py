"""What `--check` accepts runs: everything that can be observed, on every platform. Needs root."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from labtools import own_machine, record, was_made, write_experiment

from tailtap.lab.platforms import PLATFORMS

EXPERIMENT: Mapping[str, Any] = {
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


def measured(
    folder: Path, dut: Mapping[str, Any], traffic: Mapping[str, Any], platforms: Sequence[str]
) -> tuple[dict[str, Any], list[Path]]:
    """What a check says, and the run folders of what it accepts: none where it refuses."""
    content = {
        **EXPERIMENT,
        **OBSERVED,
        "dut": {**EXPERIMENT["dut"], **dut},
        "traffic": {**EXPERIMENT["traffic"], **traffic},
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
    """It costs the others nothing, and is said before and in the run."""
    outlook, folders = measured(tmp_path, OPTIONS["neighbours"], {}, ["wire", "bare-metal"])
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
@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("option", [*OPTIONS, *LOADS])
def test_what_a_check_accepts_runs(tmp_path: Path, platform: str, option: str) -> None:
    _, folders = measured(tmp_path, OPTIONS.get(option, {}), LOADS.get(option, {}), [platform])
    for folder in folders:
        assert record(folder)["status"] == "done"
