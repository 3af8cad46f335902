"""`counters: true`: what processors count of themselves, when and where. Needs root."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from labtools import own_machine, record, was_made, write_experiment

from tailtap.lab.instruments.perf import EVENTS, Counting, Snapshot, window

EXPERIMENT = """\
name: counted
dut: {cpus: [1]}
traffic: {rate: 2 kpkt/s, duration: 1 s, warm_up: 100 ms, cpu: 0}
counters: true
vary: {dut.platform: [wire, bare-metal, container]}
"""
MOVES = 40
Measurements = tuple[list[dict[str, Any]], str]
"""The record of each run, and the page about them."""

pytestmark = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="generator and DuT need a CPU each"
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Measurements:
    """A run on each platform, and the report about them."""
    folder = tmp_path_factory.mktemp("counted")
    out = folder / "out"
    path = write_experiment(folder, EXPERIMENT)
    with own_machine() as machine:
        done = machine.tailtap("run", str(path), "--out", str(out))
        assert was_made(done), done.stderr
        page = machine.tailtap("report", str(out))
        assert page.returncode == 0, page.stderr
    folders = [record(run) for run in sorted((out / "runs").iterdir())]
    return folders, (out / "report/index.html").read_text()


def counted(before: Snapshot, after: Snapshot, cpus: list[int] | None) -> dict[str, int]:
    """What a window has counted; the kernel's own events are there everywhere."""
    events = window(before, after, cpus).events
    return {name: count for name, count in events.items() if count is not None}


def outside(run: dict[str, Any], event: str, cpus: list[str]) -> int:
    """What was counted on `cpus` before and after the traffic."""
    counters = run["counters"]
    life, sent = (counters[name]["by_cpu"] for name in ("lifetime", "run"))
    return sum(life[cpu][event] - sent[cpu][event] for cpu in cpus)


def test_windows_hold_every_event_in_the_scope_that_they_name(runs: Measurements) -> None:
    (wire, *devices), page = runs
    assert wire["counters"] is None
    for device in devices:
        run, lifetime = device["counters"]["run"], device["counters"]["lifetime"]
        assert (run["scope"], run["cpus"]) == ("dut.cpus", [1])
        assert lifetime["scope"] == "machine"
        assert [str(cpu) for cpu in lifetime["cpus"]] == list(lifetime["by_cpu"])
        assert {0, 1} <= set(lifetime["cpus"])
        assert lifetime["elapsed_ns"] > run["elapsed_ns"] >= 1_000_000_000
        assert list(run["events"]) == list(lifetime["events"]) == list(EVENTS)
        assert run["events"] == run["by_cpu"]["1"]
        assert run["events"]["context-switches"] > 0  # the traffic wakes the DuT's core up
        missing = [name for name, count in run["events"].items() if count is None]
        said = [row["message"] for row in device["warnings"] if row["code"] == "counters-missing"]
        assert len(said) == (1 if missing else 0)
        assert all(name in said[0] for name in missing)
    assert "What the processors counted" in page


def test_start_and_end_of_a_container_are_in_its_lifetime(runs: Measurements) -> None:
    (_, _, container), _ = runs
    others = [cpu for cpu in container["counters"]["run"]["by_cpu"] if cpu != "1"]
    # lxc-start and all that set the lab up are kept off CPU 1, and take many turns elsewhere.
    assert outside(container, "context-switches", others) > 100
    # The container's first process, and each command in it, is born there and has to come to CPU 1.
    assert outside(container, "cpu-migrations", ["1"]) >= 2


def test_counts_agree_with_those_of_perf(tmp_path: Path) -> None:
    """A process that moves to the other CPU a number of times, counted by perf as a task."""
    code = f"import os\nfor i in range({MOVES}): os.sched_setaffinity(0, {{i % 2}})\n"
    said = tmp_path / "perf"
    command = ["perf", "stat", "-x", ",", "-o", str(said), "-e", "cpu-migrations,context-switches"]
    before_all = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {0})  # so that it is known where the process begins
    try:
        with Counting() as counting:
            empty = [counted(counting.read(), counting.read(), [1]) for _ in range(20)]
            before = counting.read()
            subprocess.run([*command, sys.executable, "-S", "-c", code], check=True)
            after = counting.read()
    finally:
        os.sched_setaffinity(0, before_all)
    rows = [line.split(",") for line in said.read_text().splitlines() if "," in line]
    task = {row[2].partition(":")[0]: int(row[0]) for row in rows}
    assert task["cpu-migrations"] >= MOVES - 1
    machine, dut = (counted(before, after, scope) for scope in (None, [1]))
    for event, count in task.items():
        assert machine[event] >= count
    # Half of its moves end on CPU 1: the other half is not in the scope of that CPU alone.
    there = MOVES // 2
    assert dut["cpu-migrations"] >= there
    assert machine["cpu-migrations"] - dut["cpu-migrations"] >= MOVES - 1 - there
    # Reading moves nothing: what an empty window counts is others' work, which not all have.
    assert min(nothing["cpu-migrations"] for nothing in empty) == 0


PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
UNPRIVILEGED = """
from tailtap.records.errors import MachineError
from tailtap.lab.instruments.perf import Counting
try:
    Counting().__enter__()
except MachineError as error:
    print(error)
"""


@pytest.mark.skipif(int(PARANOID.read_text()) <= 0, reason="anybody may count on this machine")
def test_a_kernel_that_refuses_says_what_to_change() -> None:
    drop = ["setpriv", "--bounding-set=-perfmon,-sys_admin"]
    command = [*drop, sys.executable, "-c", UNPRIVILEGED]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == (
        "counters: true: cannot count on CPU 0: Permission denied: run it as root with "
        "CAP_PERFMON, on a kernel with CONFIG_PERF_EVENTS, or set counters: false\n"
    )
