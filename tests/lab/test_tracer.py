"""`tailtap trace` against what was done on purpose: the injectors' own times are the truth.

A test that disturbs CPU 1 traces that CPU, or the other one, which must have none of it.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import injectors
import numpy as np
import pytest
from injectors import Injector
from labtools import was_made
from namespaces import TAILTAP
from numpy.typing import NDArray
from traces import (
    CALL,
    DELAY,
    FUNCTION,
    HRTIMER,
    LOST,
    SOFTIRQ,
    TASK,
    TIMER,
    VECTOR,
    WORK,
    Trace,
    events,
    tracing,
)

TRACED, SENDER = 1, 0
PERIOD_NS = 20_000_000
TIMERS = 50
LATE_NS = 10_000_000
"""How long a hypervisor may keep the traced CPU away."""


def within(records: NDArray[Any], begin: int, end: int) -> NDArray[Any]:
    chosen = (records["start"] <= end) & (records["start"] + records["dur"] >= begin)
    found: NDArray[Any] = records[chosen]
    return found


def around(records: NDArray[Any], inner: Any) -> NDArray[Any]:
    last = inner["start"] + inner["dur"]
    chosen = (records["start"] <= inner["start"]) & (records["start"] + records["dur"] >= last)
    found: NDArray[Any] = records[chosen]
    return found


def some(injecting: AbstractContextManager[Injector], seconds: float) -> Injector:
    with injecting as injector:
        time.sleep(seconds)
    assert injector.injections
    return injector


def barriers(trace: Trace, done: Injector, *, full: bool) -> None:
    """Each one is within its injection, from the CPU that asked, and in full in a vector."""
    found = trace.functions("ipi_mb")
    assert set(found["cpu"]) == {TRACED}
    calls = trace.of(VECTOR, flags=0)
    calls = calls[calls["id"] >= CALL]
    reached = [one for one in done.injections if one.reached]
    seen = [within(found, one.start_ns, one.end_ns) for one in reached]
    # The spinner may lose the CPU just before.
    assert sum(map(len, seen)) >= 0.9 * len(reached) > 0
    for one, [mine] in zip(reached, filter(len, seen), strict=False):
        # The CPU, and the thread that asked there.
        assert (mine["id"] & 0x3FF, mine["id"] >> 10) == (SENDER, done.process.pid)
        assert one.start_ns <= mine["start"] and mine["start"] + mine["dur"] <= one.end_ns
        assert len(around(calls, mine)) == full


def hogs(trace: Trace, done: Injector, **_: bool) -> None:
    """What the injector says that it worked is what its thread had the CPU for, and its name."""
    thread = done.process.pid
    stretches = trace.of(TASK, id=thread, cpu=TRACED)
    for one in done.injections:
        mine = within(stretches, one.start_ns, one.end_ns)
        begins = np.maximum(mine["start"].astype(np.int64), one.start_ns)
        ends = np.minimum((mine["start"] + mine["dur"]).astype(np.int64), one.end_ns)
        # Only a task that is more urgent takes it away.
        assert np.sum(ends - begins) > 0.9 * (one.end_ns - one.start_ns)
    assert (stretches["aux"] & 0xFFFFFFFF == thread).all()
    assert trace.said["names"]["pids"][str(thread)] == "injector"
    # It began on some CPU, before it moved to its own.
    elsewhere = trace.of(TASK, id=thread, cpu=SENDER)
    assert not len(within(elsewhere, done.injections[0].start_ns, done.injections[-1].end_ns))


def expiries(trace: Trace, done: Injector, *, full: bool) -> None:
    """In full every timer that was armed expires in the trace, and within some interrupt."""
    names = trace.said["names"]["functions"]
    ours = [int(at, 16) for at, name in names.items() if name.startswith("timerfd_tmrproc")]
    expired = trace.of(HRTIMER, cpu=TRACED)
    expired = expired[np.isin(expired["aux"], ours)]
    vectors = trace.of(VECTOR, id=TIMER, cpu=TRACED)
    for one in done.injections:
        # Somebody else's timers may be among them.
        assert len(within(expired, one.start_ns, one.end_ns + LATE_NS)) >= TIMERS * full
    assert all(len(around(vectors, timer)) == 1 for timer in expired)


def workers(trace: Trace, done: Injector, **_: bool) -> None:
    """Reading vm/stat_refresh runs a function on every CPU, between begin and end."""
    works = trace.of(WORK, cpu=TRACED)
    works = works[np.isin(works["aux"], trace.addresses("refresh_vm_stats"))]
    pids = trace.said["names"]["pids"]
    for one in done.injections:
        mine = within(works, one.start_ns, one.end_ns)
        assert len(mine) >= 1
        assert all(pids[str(pid)].startswith(f"kworker/{TRACED}") for pid in mine["id"])


def in_order(trace: Trace) -> None:
    """Records of a CPU are in the order of their ends, and one task at a time has it."""
    for cpu in (SENDER, TRACED):
        records = trace.records[trace.records["cpu"] == cpu]
        assert (np.diff((records["start"] + records["dur"]).astype(np.int64)) >= 0).all()
        tasks = records[records["kind"] == TASK]
        begins = tasks["start"].astype(np.int64)
        assert (begins[1:] >= (begins + tasks["dur"])[:-1]).all()
    assert trace.said["lost"] == {"0": 0, "1": 0}
    assert trace.said["records"] == len(trace.records)


@pytest.mark.alone
@pytest.mark.timed
@pytest.mark.parametrize("mode", [pytest.param("thin", marks=pytest.mark.slow), "full"])
def test_a_trace_has_what_was_done_and_nothing_of_it_on_another_cpu(
    injector: Path, tmp_path: Path, mode: str
) -> None:
    """One trace of both CPUs, of which one is disturbed in four ways, one after the other."""
    of_cpu = {"cpu": TRACED, "period_ns": PERIOD_NS}
    ways: list[tuple[Callable[..., None], AbstractContextManager[Injector]]] = [
        (barriers, injectors.membarrier(injector, helper=SENDER, count=1, **of_cpu)),
        (hogs, injectors.hog(injector, busy_ns=2_000_000, **of_cpu)),
        (expiries, injectors.timers(injector, count=TIMERS, **of_cpu)),
        (workers, injectors.kworkers(injector, helper=SENDER, period_ns=PERIOD_NS)),
    ]
    with tracing(tmp_path, "0,1", "--mode", mode, "--flush", "100 ms"):
        done = [some(injecting, 0.5) for _, injecting in ways]
    trace = Trace.read(tmp_path)
    in_order(trace)
    for (check, _), one in zip(ways, done, strict=True):
        check(trace, one, full=mode == "full")


@pytest.mark.alone
@pytest.mark.timed
def test_what_finds_no_room_is_counted(injector: Path, tmp_path: Path) -> None:
    """While nobody empties the ring, everything behind its 64 records is lost, and counted."""
    with tracing(tmp_path, str(TRACED), "--records", "64", "--flush", "0 s") as process:
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.1)
        hog = injectors.hog(injector, cpu=TRACED, busy_ns=100_000, period_ns=1_000_000)
        done = some(hog, 0.5)
        process.send_signal(signal.SIGCONT)
    trace = Trace.read(tmp_path)
    told = trace.of(LOST)
    assert told["aux"].sum() == trace.said["lost"][str(TRACED)]
    lost = told[np.argmax(told["aux"])]
    # Each time the hog had the CPU is a record, and so is the idle time or the task between.
    assert lost["aux"] >= 2 * (len(done.injections) - 64)
    stored = trace.records[trace.records["kind"] != LOST]
    begin, end = int(lost["start"]), int(lost["start"]) + int(lost["dur"])
    inside = (stored["start"] > begin) & (stored["start"] + stored["dur"] < end)
    assert not inside.any()
    assert begin < done.injections[-1].start_ns < end


def test_a_killed_trace_has_records_and_no_description(injector: Path, tmp_path: Path) -> None:
    """The file of one that is killed can be read as far as it goes."""
    with tracing(tmp_path, str(TRACED), "--flush", "100 ms") as process:
        some(injectors.hog(injector, cpu=TRACED, period_ns=PERIOD_NS), 0.5)
        process.kill()
    assert not (tmp_path / "trace.json").exists()
    records = events(tmp_path)
    assert len(records)
    assert set(records["cpu"]) == {TRACED}


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [TAILTAP, *words], check=False, capture_output=True, text=True, timeout=60
    )


def test_a_person_sees_what_there_was(tmp_path: Path) -> None:
    done = run("trace", "--cpus", "0-1", "--out", str(tmp_path), "--for", "300 ms", "--cost")
    assert done.returncode == 0, done.stderr
    assert " records of CPUs 0-1 in 0.3 s -> " in done.stdout
    assert "  task " in done.stdout
    assert "cost: " in done.stdout
    assert " % of one CPU" in done.stdout


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.timed
def test_a_run_has_its_trace(tmp_path: Path) -> None:
    """With the key `trace`: files, facts, who serves, and the DuT's work in it."""
    experiment = tmp_path / "traced.yaml"
    experiment.write_text(
        "name: traced\n"
        "dut: {platform: bare-metal, forwarder: tc-mirred, cpus: [1]}\n"
        "traffic: {rate: 5 kpkt/s, duration: 500 ms, warm_up: 100 ms, slip_limit: 1 s}\n"
        "vary: {trace: [none, thin]}\n"
    )
    out = tmp_path / "out"
    done = run("run", str(experiment), "--out", str(out), "--quiet")
    assert was_made(done), done.stderr
    without, with_trace = sorted((out / "runs").iterdir())
    assert not (without / "trace.events").exists()
    assert json.loads((without / "run.json").read_text())["trace"] is None
    trace = Trace.read(with_trace)
    record = json.loads((with_trace / "run.json").read_text())
    assert record["trace"]["records"] == len(trace.records)
    assert record["instruments"]["trace"]["files"] == ["trace.events", "trace.json"]
    assert trace.said["served"] == {"by": "softirq", "vector": 3, "pids": [], "cpus": [1]}
    received = trace.of(SOFTIRQ, id=3)
    alone = received[received["flags"] == 0]
    together = received[received["flags"] == 1]
    runs = len(alone) + int((together["aux"] & 0xFFFFFFFF).sum())
    # Each packet is served by a softirq; some share one when they wait.
    assert runs > 500
    assert trace.said["mode"] == "thin"
    # Usual packets have no records of their own: only of others it is told how long the call was
    # under way that told the core of them. Half of all are usual, whatever the machine is like.
    usual = trace.said["usual"]["1"]["passes"]
    assert runs / 3 < usual <= int((together["aux"] & 0xFFFFFFFF).sum())
    calls = trace.of(DELAY)
    calls = calls[np.isin(calls["aux"], trace.addresses("rps_trigger_softirq"))]
    assert len(calls) <= runs - usual
    assert trace.said["writes"] == 0
    assert not len(trace.of(FUNCTION)) or set(trace.of(FUNCTION)["cpu"]) == {1}


def test_a_budget_is_kept_by_pauses_that_are_told(injector: Path, tmp_path: Path) -> None:
    """What happens in a pause is as if its records had found no room; nothing lies across it."""
    disturbed = injectors.membarrier(injector, cpu=TRACED, helper=SENDER, period_ns=PERIOD_NS)
    with disturbed:
        with tracing(tmp_path / "all", str(TRACED), "--budget", "100 %"):
            time.sleep(0.3)
        whole = Trace.read(tmp_path / "all").said
        assert whole["share"] > 0 and whole["paused_ns"] == 0
        budget = f"{100 * whole['share'] / 4:.4f} %"
        with tracing(tmp_path / "some", str(TRACED), "--budget", budget):
            time.sleep(6)
    trace = Trace.read(tmp_path / "some")
    pauses = trace.of(LOST)
    assert not pauses["aux"].any() and not sum(trace.said["lost"].values())
    assert trace.said["paused_ns"] > 900_000_000
    assert int(pauses["dur"].sum()) == trace.said["paused_ns"]
    assert trace.said["share"] < whole["share"]
    others = trace.records[trace.records["kind"] != LOST]
    ends = others["start"] + others["dur"]
    first, last = pauses["start"].min(), (pauses["start"] + pauses["dur"]).max()
    for pause in pauses:
        begin, end = pause["start"] + 1_000_000, pause["start"] + pause["dur"]
        assert not ((others["start"] < end - 1_000_000) & (ends > begin)).any()
    assert (ends < first).any()
    if last < trace.said["ended_ns"] - LATE_NS:  # it went on
        assert (others["start"] > last).any()
