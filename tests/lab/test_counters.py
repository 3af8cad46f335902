"""`counters: true`: what the DuT's processors count of themselves. Needs root and perf."""

from __future__ import annotations

import json
import os
from pathlib import Path

from labtools import TAILTAP, own_machine, record, write_experiment

from tailtap.host.perf import EVENTS

EXPERIMENT = """\
name: counted
dut: {cpus: [1]}
traffic: {rate: 2 kpkt/s, duration: 1 s, warm_up: 100 ms, cpu: 0}
counters: true
vary: {dut.platform: [wire, bare-metal]}
"""


def test_both_windows_hold_every_event_and_missing_ones_are_said_to_be(tmp_path: Path) -> None:
    path = write_experiment(tmp_path, EXPERIMENT)
    out = tmp_path / "out"
    with own_machine() as machine:
        done = machine.tailtap("run", str(path), "--out", str(out))
        assert done.returncode == 0, done.stderr
        wire, device = (record(run) for run in sorted((out / "runs").iterdir()))
        page = machine.tailtap("report", str(out))
        assert page.returncode == 0, page.stderr
    assert wire["counters"] is None
    run, lifetime = device["counters"]["run"], device["counters"]["lifetime"]
    assert run["cpus"] == lifetime["cpus"] == [1]
    assert lifetime["elapsed_ns"] > run["elapsed_ns"] >= 1_000_000_000
    assert list(run["events"]) == list(lifetime["events"]) == list(EVENTS)
    # The traffic wakes the DuT's core up, and its set-up and end come on top.
    assert lifetime["events"]["context-switches"] > run["events"]["context-switches"] > 0
    missing = [name for name, count in run["events"].items() if count is None]
    said = [row["message"] for row in device["warnings"] if row["code"] == "counters-missing"]
    assert len(said) == (1 if missing else 0)
    assert all(name in said[0] for name in missing)
    assert not list((out / "runs").rglob(".perf-*"))
    html = (out / "report/index.html").read_text()
    assert "What the device's processors counted" in html


def test_a_machine_without_perf_says_what_to_install(tmp_path: Path) -> None:
    path = write_experiment(tmp_path, EXPERIMENT)
    # Everything but perf, as on a machine where it is not installed.
    programs = tmp_path / "programs"
    programs.mkdir()
    for folder in os.environ["PATH"].split(":"):
        for program in Path(folder).glob("*") if Path(folder).is_dir() else ():
            target = programs / program.name
            if program.name != "perf" and not target.exists():
                target.symlink_to(program)
    with own_machine() as machine:
        done = machine.run(
            "env", f"PATH={programs}", *TAILTAP, "run", str(path), "--out", str(tmp_path / "out")
        )
    assert done.returncode == 3
    assert "linux-perf" in done.stderr
    assert "Traceback" not in done.stderr
    last = record(sorted((tmp_path / "out/runs").iterdir())[-1])
    assert last["status"] == "failed"
    assert json.dumps(last["counters"]) == "null"
