"""`counters`: what processors and the kernel count, when and of what. Needs root."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import injectors
import pytest
from labtools import measured, own_machine, record, was_made, write_experiment
from program import in_process, tailtap

from tailtap.host.containers import cgroups
from tailtap.lab.instruments.events import DEFAULT as EVENTS
from tailtap.lab.instruments.events import Events
from tailtap.lab.instruments.perf import Counting, Snapshot, window
from tailtap.records.interrupts import read_samples

EXPERIMENT = """\
name: counted
dut: {cpus: [1]}
traffic: {rate: 2 kpkt/s, duration: 500 ms, warm_up: 100 ms, cpu: 0}
counters: true
vary: {dut.platform: [wire, container]}
"""
PAGES = 4000
TOUCHED = f"""
import mmap, os
child = os.fork()
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
memory = mmap.mmap(-1, 4096 * {PAGES})
for page in range({PAGES}):
    memory[4096 * page] = 1
"""
WORKED = f"""
import time
{TOUCHED}
end = time.process_time() + 0.3
while time.process_time() < end:
    pass
"""
Measurements = tuple[list[dict[str, Any]], str]
"""The record of each run, and the page about them."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Measurements:
    made = measured(tmp_path_factory.mktemp("counted"), EXPERIMENT)
    page = tailtap("report", made.out)
    assert page.returncode == 0, page.stderr
    return made.records, (made.out / "report/index.html").read_text()


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
    (wire, device), page = runs
    assert wire["counters"] is None
    run, lifetime = device["counters"]["run"], device["counters"]["lifetime"]
    assert (run["scope"], run["cpus"]) == ("dut.cpus", [1])
    assert lifetime["scope"] == "machine"
    assert [str(cpu) for cpu in lifetime["cpus"]] == list(lifetime["by_cpu"])
    assert {0, 1} <= set(lifetime["cpus"])
    assert lifetime["elapsed_ns"] > run["elapsed_ns"] >= 500_000_000
    assert list(run["events"]) == list(lifetime["events"]) == list(EVENTS)
    assert run["events"] == run["by_cpu"]["1"]
    assert run["events"]["context-switches"] > 0  # the traffic wakes the DuT's core up
    missing = [name for name, count in run["events"].items() if count is None]
    said = [row["message"] for row in device["warnings"] if row["code"] == "counters-missing"]
    assert len(said) == (1 if missing else 0)
    assert all(name in said[0] for name in missing)
    assert "What the processors counted" in page


def test_start_and_end_of_a_container_are_in_its_lifetime(runs: Measurements) -> None:
    (_, container), _ = runs
    others = [cpu for cpu in container["counters"]["run"]["by_cpu"] if cpu != "1"]
    # lxc-start and all that set the lab up are kept off CPU 1, and take many turns elsewhere.
    assert outside(container, "context-switches", others) > 100
    # The container's first process, and each command in it, is born there and has to come to CPU 1.
    assert outside(container, "cpu-migrations", ["1"]) >= 2


def told(file: str, name: str) -> int:
    rows = (line.split() for line in Path("/proc", file).read_text().splitlines())
    return next(int(row[1]) for row in rows if row[0] == name)


def test_any_event_is_counted_as_proc_and_perf_do(tmp_path: Path) -> None:
    """Of the kernel, a tracepoint, one in user space alone, and one that nothing here has."""
    names = ["context-switches", "page-faults", "sched:sched_process_fork", "page-faults:u"]
    asked = Events.model_validate({"events": [*names, "task-clock"], "by": "machine"})
    said = tmp_path / "perf"
    command = ["perf", "stat", "-a", "-x", ",", "-o", str(said), "-e", ",".join(names)]
    with Counting(asked) as counting:
        outer, faults = told("stat", "ctxt"), told("vmstat", "pgfault")
        before = counting.read()
        inner = told("stat", "ctxt")
        subprocess.run([*command, sys.executable, "-S", "-c", TOUCHED], check=True)
        least = told("stat", "ctxt") - inner
        after = counting.read()
        most = told("stat", "ctxt") - outer
        faults = told("vmstat", "pgfault") - faults
    found = window(before, after, None)
    switches, of_tasks = found.events["context-switches"], found.events["page-faults"]
    assert switches is not None and 0.99 * least <= switches <= 1.01 * most
    # The kernel also counts the faults that it makes itself, for memory that it reads or fills.
    assert of_tasks is not None and PAGES <= of_tasks <= faults
    rows = [line.split(",") for line in said.read_text().splitlines() if "," in line]
    of_perf = {row[2]: int(row[0]) for row in rows}
    assert of_perf.keys() == set(names)
    for name, count in of_perf.items():
        assert (found.events[name] or 0) >= count > 0  # ours began before and ended after it
    assert of_perf["page-faults:u"] >= PAGES
    clocks = found.events["task-clock"]
    assert clocks is not None
    assert abs(clocks - len(found.cpus) * found.elapsed_ns) < 0.01 * clocks  # all were counted on


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group of ours, in the hierarchy in which events are counted."""
    name = "tt-c0c0c0-counted"
    for row in cgroups.hierarchies():
        if row.version == 2:
            (row.path / name).mkdir()
    path = cgroups.counted(name)
    if path is None:
        pytest.skip("no unified hierarchy of control groups here")
    try:
        yield path
    finally:
        cgroups.remove(name)


def test_a_group_is_counted_alone(group: Path) -> None:
    """Its time is what the group itself says; what others do meanwhile is not in it."""
    asked = Events.model_validate({"events": ["task-clock", "page-faults:u"]})
    entered = f'echo $$ > {group}/cgroup.procs && exec "$@"'
    with Counting(asked) as counting, counting.of_groups([group]) as of_group:
        before, whole = of_group.read(), counting.read()
        subprocess.run([sys.executable, "-S", "-c", TOUCHED], check=True)
        subprocess.run(["sh", "-c", entered, "sh", sys.executable, "-S", "-c", WORKED], check=True)
        found, machine = (
            window(before, of_group.read(), None),
            window(whole, counting.read(), None),
        )
    [used] = [
        1000 * int(line.split()[1])
        for line in (group / "cpu.stat").read_text().splitlines()
        if line.startswith("usage_usec")
    ]
    clock, faults = found.events["task-clock"], found.events["page-faults:u"]
    assert clock is not None and abs(clock - used) < 0.02 * used
    assert faults is not None and PAGES <= faults < 2 * PAGES <= (
        machine.events["page-faults:u"] or 0
    )
    assert found.kinds == {} and machine.kinds["LOC"] > 0


def test_interrupts_and_softirqs_are_counted_by_kind() -> None:
    """Of the device's CPU as of the machine, as the kernel lists them."""
    with Counting(Events()) as counting:
        before, first = counting.read(), Path("/proc/softirqs").read_text()
        time.sleep(0.3)
        last, after = Path("/proc/softirqs").read_text(), counting.read()
    every, one = window(before, after, None), window(before, after, [1])
    rises: dict[str, int] = {}
    for text, sign in ((first, -1), (last, 1)):
        for row in text.splitlines()[1:]:
            name, _, values = row.strip().partition(":")
            rises[name] = rises.get(name, 0) + sign * int(values.split()[1])
    for name, count in rises.items():
        assert one.kinds.get(f"{name} softirq", 0) >= count
    assert one.kinds == one.kinds_by_cpu["1"]
    assert all(every.kinds[kind] >= count for kind, count in one.kinds.items())
    assert every.kinds["LOC"] > 0  # this process was woken up


def test_what_will_not_be_counted_is_said_beforehand(tmp_path: Path) -> None:
    """What the machine has no counter for, and the kernel's work, which is no group's."""
    text = EXPERIMENT.replace(
        "counters: true", "counters: {events: [r1a8, page-faults], by: group}"
    )
    path = write_experiment(tmp_path, text)
    done = in_process("run", path, "--check", "--json")
    other = ("--set", "dut.forwarder=xdp", "--set", "vary.dut.platform=[bare-metal]")
    refused = in_process("run", path, "--check", *other)
    said = json.loads(done.stdout)
    [container] = [row["message"] for row in said["runs"][1]["notes"]]
    assert container.startswith("counters.by: group: tc-mirred works in the kernel")
    with Counting(Events(events=["r1a8"])) as counting:
        has = window(counting.read(), counting.read(), None).events["r1a8"] is not None
    notes = [row["message"] for row in said["notes"] if row["message"].startswith("counters: ")]
    assert [note.partition(" (")[0] for note in notes] == (
        [] if has else ["counters: this machine does not count r1a8"]
    )
    assert refused.returncode == 2
    assert "counters.by: only containers have a control group of their own" in refused.stderr


def test_what_one_cpu_counts_for_many_is_counted_there_alone(tmp_path: Path) -> None:
    """As the units of a package that all its cores share: here migrations stand in for them."""
    (tmp_path / "unit").mkdir()
    (tmp_path / "unit/type").write_text("1\n")
    (tmp_path / "unit/cpumask").write_text("0\n")
    with Counting(Events(), sources=tmp_path) as counting:
        found, one = (window(counting.read(), counting.read(), scope) for scope in (None, [1]))
    assert "context-switches" in found.by_cpu["0"]
    assert "context-switches" not in found.by_cpu["1"]
    assert found.events["context-switches"] is not None
    assert one.events["context-switches"] is None


def test_an_unknown_event_is_told_with_its_line(tmp_path: Path) -> None:
    """Before anything is made, whether it is checked or run."""
    text = EXPERIMENT.replace(
        "counters: true", "counters:\n  events:\n  - branches\n  - page-fault"
    )
    path = write_experiment(tmp_path, text)
    for more in (["--check"], ["--out", str(tmp_path / "out")]):
        done = in_process("run", path, *more)
        said = done.stdout + done.stderr
        assert done.returncode == (3 if more == ["--check"] else 2), said
        where = f"{path}:7: counters.events[1]: there is no event 'page-fault' here"
        assert f"{where}: did you mean 'page-faults'" in said
    assert not (tmp_path / "out").exists()


PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
UNPRIVILEGED = """
from tailtap.base.errors import MachineError
from tailtap.lab.instruments.events import Events
from tailtap.lab.instruments.perf import Counting
try:
    Counting(Events()).__enter__()
except MachineError as error:
    print(error)
"""


@pytest.mark.skipif(int(PARANOID.read_text()) <= 0, reason="anybody may count on this machine")
def test_a_kernel_that_refuses_says_what_to_change() -> None:
    drop = ["setpriv", "--bounding-set=-perfmon,-sys_admin"]
    command = [*drop, sys.executable, "-c", UNPRIVILEGED]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == (
        "counters: cannot count on CPU 0: Permission denied: run it as root with "
        "CAP_PERFMON, on a kernel with CONFIG_PERF_EVENTS, or set counters: false\n"
    )


MS = 1_000_000
SAMPLED = """\
name: sampled
dut: {cpus: [1]}
traffic: {rate: 5 kpkt/s, duration: 6 s, warm_up: 100 ms, cpu: 0}
interrupts: {counters: {period: 40 ms}}
"""
TIMERS = "LOC_Local_timer_interrupts_CPU1"


def sampled(
    folder: Path, injector: contextlib.AbstractContextManager[Any]
) -> tuple[Path, dict[str, Any], dict[str, Any]]:
    """The folder of a run with an injector, and what is found by its own clock and without it."""
    path, out = write_experiment(folder, SAMPLED), folder / "out"
    with own_machine() as machine:
        with injector:
            done = machine.tailtap("run", str(path), "--out", str(out))
        assert was_made(done), done.stderr
        [run] = (out / "runs").iterdir()
        found = []
        for words in ([], ["--samples", str(run / "interrupts.csv"), "--out", str(folder / "x")]):
            said = machine.tailtap("interrupts", str(run), "--json", *words)
            assert said.returncode == 0, said.stderr
            found += json.loads(said.stdout)["runs"]
    return run, found[0], found[1]


@pytest.mark.alone
@pytest.mark.timed
def test_timers_on_the_core_of_the_dut_are_found(injector: Path, tmp_path: Path) -> None:
    # 20 ms in which the core does little else: more than the host of a virtual machine takes.
    bursts = injectors.timers(
        injector, cpu=1, count=4000, gap_ns=5_000, period_ns=250 * MS, spread_ns=150 * MS
    )
    run, own, foreign = sampled(tmp_path, bursts)
    facts, samples = record(run)["interrupts"], read_samples(run / "interrupts.csv")
    assert len(samples.times_ns) == facts["samples"] and facts["period_ns"] == 40 * MS
    assert facts["cpu"] != 1
    assert (own["offset"]["source"], own["offset"]["ns"]) == ("clock", 0)
    assert own["answer"] == "associated"
    rows = {row["name"]: row for row in own["counters"]}
    assert rows[TIMERS]["associated"]
    assert rows[TIMERS]["late_per_s"] > 2 * rows[TIMERS]["elsewhere_per_s"]
    assert own["sampler"] is not None
    # The same samples, as if their clock were somebody else's.
    assert foreign["offset"]["source"] == "suggested"
    if foreign["offset"]["ns"] is not None:
        assert foreign["offset"]["low_ns"] <= 0 <= foreign["offset"]["high_ns"]
    else:
        assert foreign["answer"] == "cannot-tell"
