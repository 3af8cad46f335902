"""What takes an idle core: gaps are those that an injector made, by its own clock and name."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from explaining import is_called
from guest_programs import script
from injectors import Injection, hog
from labtools import own_machine
from msgspec.json import decode
from standing import standing

from tailtap.lab.platforms import DutSpec
from tailtap.lab.platforms.vm import VmOptions
from tailtap.records.causes import NoiseCause, NoiseRecord
from tailtap.remote.guest import GuestHost

CPU = 1
PERIOD_NS = 50_000_000
BUSY_NS = 3_000_000
pytestmark = pytest.mark.skipif(
    CPU not in os.sched_getaffinity(0), reason="one CPU more than that of the test is needed"
)


@pytest.mark.alone
@pytest.mark.timed
def test_what_an_injector_takes_is_found_and_named(injector: Path, tmp_path: Path) -> None:
    with (
        own_machine() as machine,
        hog(injector, cpu=CPU, busy_ns=BUSY_NS, period_ns=PERIOD_NS) as injected,
    ):
        found = machine.tailtap(
            "host", "noise", "--cpus", str(CPU), "--for", "1500 ms", "--above", "100 us", "--json",
            "--out", str(tmp_path / "results"),
        )  # fmt: skip
    assert found.returncode == 0, found.stderr
    noise = decode(found.stdout, type=NoiseRecord)
    stored = json.loads((tmp_path / "results/noise.json").read_text())
    assert stored == json.loads(found.stdout)
    [cpu] = noise.cpus
    assert cpu.gaps >= 20
    assert cpu.least_ns < 5_000
    truth = {(one.start_ns, one.end_ns) for one in injected.injections}
    for gap in noise.worst[:5]:
        held = [
            (start, end)
            for start, end in truth
            if gap.start_ns <= start and end <= gap.start_ns + gap.ns
        ]
        assert held, gap
        of_hog = sum(part.ns for part in gap.parts if part.cause == "task")
        assert of_hog >= 0.9 * sum(end - start for start, end in held)
    first = noise.causes[0]
    assert first.cause == "task"
    assert first.ns >= 20 * BUSY_NS * 0.9


CPU_OSNOISE = 1
SECONDS, TURNS = 5, 2
BUSY_NS_OSNOISE, PERIOD_NS_OSNOISE, SPREAD_NS = 12_000_000, 200_000_000, 60_000_000
ABOVE_NS = 20_000
"""Shorter gaps are none, for all of them."""
EDGE_NS = 100_000_000
"""What an injection must be apart from both ends of a watch."""
PATIENCE = 900.0
"""In s: all is emulated."""
WATCHES = """
import contextlib, json, os, pathlib, subprocess, sys, time
import tailtap.lab.instruments.tracer as tracer
import tailtap.measure.noise as noise
from msgspec.json import encode

tracer.READY_SECONDS = 300.0  # all is emulated

program, cpu, seconds, turns, above, *numbers = sys.argv[1:]
tracing = pathlib.Path("/sys/kernel/tracing")


def put(name, value):
    (tracing / name).write_text(value)


@contextlib.contextmanager
def disturbed():
    command = [program, *numbers, "/run/log"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as hog:
        assert hog.stdout.readline() == "ready\\n"
        try:
            yield
        finally:
            hog.terminate()
    log = pathlib.Path("/run/log").read_text().splitlines()
    injections.extend(json.loads(line) for line in log)


injections = []

def traced(tracer):
    put("tracing_on", "0")
    put("trace_clock", "mono")
    put("buffer_size_kb", "40000")
    put("osnoise/cpus", cpu)
    put("tracing_thresh", str(int(above) // 1000))
    for name in ("period_us", "runtime_us"):  # it pauses between two periods
        put(f"osnoise/{name}", str(10**6 * (int(seconds) + 20)))
    put("events/osnoise/enable", "1")
    put("current_tracer", tracer)
    time.sleep(1)  # its thread is there
    if tracer == "timerlat":  # less urgent than what is injected, so that it waits for that
        for task in pathlib.Path("/proc").glob("[0-9]*"):
            if (task / "comm").read_text().startswith("timerlat/"):
                os.sched_setscheduler(int(task.name), os.SCHED_FIFO, os.sched_param(1))
    with disturbed():
        put("tracing_on", "1")
        began = time.monotonic_ns()
        time.sleep(int(seconds))
        ended = time.monotonic_ns()
        put("tracing_on", "0")  # which may take its time
    said = (tracing / "trace").read_text()
    put("current_tracer", "nop")
    put("events/osnoise/enable", "0")
    put("trace", "")
    return {"what": tracer, "began": began, "ended": ended, "said": said}


def ours():
    found, ask = [], noise._core.noise

    def kept(*words):
        *words, follow = words
        with contextlib.ExitStack() as stack:

            def followed(threads):
                follow(threads)
                stack.enter_context(disturbed())
                found.append(time.monotonic_ns())

            told = ask(*words, followed)
            found.append(time.monotonic_ns())
        found.extend(gap for one in told for gap in one["gaps"])
        return told

    noise._core.noise = kept
    record = noise.noise([int(cpu)], int(seconds) * 10**9, int(above))
    noise._core.noise = ask
    began, ended, *gaps = found
    told = {"record": encode(record).decode(), "gaps": gaps}
    return {"what": "noise", "began": began, "ended": ended, **told}


subprocess.run(["mount", "-t", "tracefs", "tracefs", str(tracing)], check=True)
watches = []
for _ in range(int(turns)):
    watches += [traced("osnoise"), ours(), traced("timerlat")]
print(json.dumps({"watches": watches, "injections": injections}))
"""
LINE = re.compile(r"\[\d+\] \S+ +(\d+)\.(\d{6}): (?:#\d+ +context +(\w+)|(\w+):) (.*)")


@dataclass
class Watch:
    """What one of them saw; times in ns of the guest's CLOCK_MONOTONIC."""

    what: str
    began: int
    ended: int
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """Times that its loop or its timer waited."""
    task_ns: int = 0
    """For how long the injector had the core."""
    record: NoiseRecord | None = None

    def holds(self, one: Injection) -> bool:
        return self.began + EDGE_NS < one.start_ns and one.end_ns < self.ended - EDGE_NS


def is_hog(row: NoiseCause) -> bool:
    return row.cause == "task" and is_called(row.detail, "injector")


def watch(told: dict[str, Any]) -> Watch:
    found = Watch(told["what"], told["began"], told["ended"])
    if found.what == "noise":
        found.gaps = [(start, end) for start, end in told["gaps"]]
        found.record = decode(told["record"], type=NoiseRecord)
        its = [row for row in found.record.causes if is_hog(row)]
        found.task_ns = sum(row.ns for row in its)
        return found
    for seconds, micros, context, event, rest in LINE.findall(told["said"]):
        at = 1_000_000_000 * int(seconds) + 1000 * int(micros)
        number = re.search(r"(?:duration|timer_latency) +(\d+) ns", rest)
        if number is None:
            continue
        if event == "sample_threshold" or context == "thread":
            found.gaps.append((at - int(number[1]), at))
        elif event == "thread_noise" and "injector:" in rest:
            found.task_ns += int(number[1])
    return found


def covered(gaps: Sequence[tuple[int, int]], one: Injection) -> float:
    def shared(gap: tuple[int, int]) -> int:
        return min(gap[1], one.end_ns) - max(gap[0], one.start_ns)

    return max(map(shared, gaps), default=0) / (one.end_ns - one.start_ns)


@pytest.mark.alone
@pytest.mark.timed
@pytest.mark.slow
@pytest.mark.timeout(2_400)
def test_noise_finds_the_gaps_that_the_tracers_of_the_kernel_find(injector: Path) -> None:
    """Every injection, by all three; and of osnoise and ours the whole time that it took."""
    hog = ("hog", CPU_OSNOISE, CPU_OSNOISE, PERIOD_NS_OSNOISE, SPREAD_NS, BUSY_NS_OSNOISE, 1, 120)
    options = VmOptions.model_validate({"memory": "1024 MiB", "kernel": "rt"})
    with standing("vm", DutSpec((0, 1), options)) as (_, device):
        assert isinstance(device.host, GuestHost)
        words = map(str, (injector, CPU_OSNOISE, SECONDS, TURNS, ABOVE_NS, *hog))
        told = script(device.host, WATCHES, *words, seconds=PATIENCE)
    check([watch(one) for one in told["watches"]], [Injection(**one) for one in told["injections"]])


def check(watches: Sequence[Watch], injections: Sequence[Injection]) -> None:
    taken: dict[str, list[float]] = {}
    for one in watches:
        its = [injection for injection in injections if one.holds(injection)]
        assert len(its) > SECONDS
        parts = [covered(one.gaps, injection) for injection in its]
        # A timer that expires once in 1 ms begins to wait in the middle of an injection.
        least = 0.8 if one.what == "timerlat" else 0.95
        found = sum(part >= least for part in parts) / len(parts)
        assert found >= 0.95, (one.what, sorted(parts))
        whole = sum(it.end_ns - it.start_ns for it in injections
                    if one.began < it.start_ns and it.end_ns < one.ended)  # fmt: skip
        taken.setdefault(one.what, []).append(one.task_ns / whole)
        if one.record is not None:
            # What the guest's host took is a gap here, and `HW` to osnoise.
            named = [row for row in one.record.causes if row.cause != "gap"]
            assert is_hog(named[0])
    # Who took the core is told by name: for as long as the injector says, or little more.
    for what in ("osnoise", "noise"):
        assert all(0.9 < share < 1.25 for share in taken[what]), taken
    # What takes the core besides (the host of the guest, its timer) does so about as often.
    often = {
        what: sum(len(one.gaps) for one in watches if one.what == what)
        / sum(one.ended - one.began for one in watches if one.what == what)
        for what in taken
    }
    assert 0.5 < often["noise"] / often["osnoise"] < 2, often
