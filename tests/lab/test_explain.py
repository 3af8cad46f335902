"""`tailtap explain` against what was done on purpose: the injectors' own logs are the truth.

Tasks and timers, and behind them what the kernel does on behalf of others.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import pytest
from explaining import (
    DUT,
    LINE,
    OTHER,
    Columns,
    explained,
    forwarder_of,
    held,
    is_called,
    undisturbed,
)
from injectors import (
    GROUPS,
    Injector,
    call_ns,
    calls,
    compaction,
    flow,
    hog,
    throttling,
    timers,
)
from long_interrupts import long_interrupts
from namespaces import Namespace
from traces import TIMER, VECTOR, Trace, tracing


@pytest.mark.alone
@pytest.mark.timed
@pytest.mark.parametrize(
    ("forwarder", "napi"),
    [("fault", "softirq"), pytest.param("tc-mirred", "threads", marks=pytest.mark.slow)],
)
def test_a_hog_makes_packets_late_that_a_task_serves(
    injector: Path, tmp_path: Path, forwarder: str, napi: str
) -> None:
    """Of the forwarder, or of the kernel: it polls the port in a thread of its own."""
    found = explained(
        tmp_path, forwarder, [lambda _: hog(injector, cpu=DUT, busy_ns=2_000_000)], "300 us",
        napi=napi,
    )  # fmt: skip
    assert found.causes["served"]["by"] == "task"
    found.blames("task", "injector")
    row = found.claimed("task", "injector")
    assert row["p_value"] <= 0.001
    assert "isolated-cpus" in row["knobs"]


@contextlib.contextmanager
def group(name: str) -> Iterator[Path]:
    """A control group of version 2, for the time of a test."""
    trees = (GROUPS / "unified", GROUPS)
    tree = next(tree for tree in trees if (tree / "cgroup.procs").exists())
    found = tree / f"{name}-{os.getpid()}"
    found.mkdir()
    try:
        yield found
    finally:
        found.rmdir()


@contextlib.contextmanager
def grouped(
    injecting: contextlib.AbstractContextManager[Injector], into: Path
) -> Iterator[Injector]:
    with injecting as one:
        (into / "cgroup.procs").write_text(str(one.process.pid))
        yield one


NAMESAKE = "#!/bin/bash\nexec 3<> <(:)\nwhile :; do read -t 0.01 -u 3; done\n"


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timed
def test_of_two_programs_of_one_name_the_guilty_one_is_named(
    injector: Path, tmp_path: Path
) -> None:
    """Both have the forwarder's core, with policies and groups of their own; one for moments."""
    namesake = tmp_path / injector.name
    namesake.write_text(NAMESAKE)
    namesake.chmod(0o755)
    hogs: list[int] = []

    @contextlib.contextmanager
    def guilty(_: object) -> Iterator[Injector]:
        with grouped(hog(injector, cpu=DUT, busy_ns=2_000_000), guilt) as one:
            hogs.append(one.process.pid)
            yield one

    with group("guilty") as guilt, group("other") as others:
        decoy = subprocess.Popen(["taskset", "-c", str(DUT), namesake])
        try:
            (others / "cgroup.procs").write_text(str(decoy.pid))
            found = explained(tmp_path, "fault", [guilty], "300 us")
        finally:
            decoy.kill()
            decoy.wait()
    rows = [row for row in found.rows("task") if row["claim"] == "cause"]
    tasks = [row["task"] for row in rows]
    [(row, task)] = [(r, t) for r, t in zip(rows, tasks, strict=True) if t["pid"] == hogs[0]]
    assert task["cgroup"] == f"/{guilt.name}"
    assert (task["policy"], task["priority"]) != ("OTHER", 0)
    assert is_called(row["detail"], "injector") and guilt.name in row["detail"]
    found.blames("task", row["detail"])
    names = Trace.read(found.run).said["names"]["tasks"]
    assert names[str(decoy.pid)]["cgroup"] == f"/{others.name}"
    assert decoy.pid not in {task["pid"] for task in tasks}


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timed
def test_a_hog_makes_packets_late_in_the_node_whose_core_it_takes(
    injector: Path, tmp_path: Path
) -> None:
    """Two nodes, each on a core of its own: the softirq serves the first, a task the second."""
    found = explained(
        tmp_path, "fault", [lambda _: hog(injector, cpu=DUT, busy_ns=2_000_000)], "300 us",
        dut=LINE + "cpus: [0, 1], taps: hops}}",
    )  # fmt: skip
    found.blames("task", "injector", chosen=found.late["segment"] == 2)
    assert [(row["by"], row["cpus"]) for row in found.causes["segments"]] == [
        ("softirq", [OTHER]),
        ("task", [DUT]),
    ]


@contextlib.contextmanager
def idle_task() -> Iterator[None]:
    """A task that has the device's core whenever nobody else wants it."""
    command = ("chrt", "--idle", "0", "taskset", "--cpu-list", str(DUT), "timeout", "60", "yes")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timed
def test_a_quota_makes_packets_late_that_a_task_serves(injector: Path, tmp_path: Path) -> None:
    """Whoever has the core meanwhile: here a task that gives way to any other one."""

    def injecting(run: subprocess.Popen[str]) -> contextlib.AbstractContextManager[Injector]:
        return throttling(
            injector, [forwarder_of(run)], cpu=DUT, helper=OTHER, spread_ns=80_000_000
        )

    with idle_task():
        found = explained(tmp_path, "fault", [injecting], "300 us")
    found.blames("throttled", least=1000)
    found.claimed("throttled")


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timed
def test_timers_make_packets_late_that_the_softirq_serves(injector: Path, tmp_path: Path) -> None:
    """A softirq preempts a hog, but not an interrupt: timers that expire at once take long.

    They come at irregular times. What comes every 100 ms and lasts 1 ms finds one in a hundred
    shifts of itself again, which the shifts cannot tell from a coincidence.
    """
    found = explained(
        tmp_path,
        "tc-mirred",
        [lambda _: timers(injector, cpu=DUT, count=8000, gap_ns=0, spread_ns=40_000_000)],
        "300 us",
    )
    assert found.causes["served"]["by"] == "softirq"
    timer = found.rows("timer")
    assert timer and timer[0]["claim"] == "cause"
    assert (found.late["excess_ns"] > 0).all()


LONG_NS = 100_000
WHERE = f"local timer, on the generator's CPU {OTHER}"
GENERATED = 300_000


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timed  # how often an interrupt meets the moment in which a packet is handed over
def test_an_interrupt_of_the_generator_s_cpu_is_named(tmp_path: Path) -> None:
    """Its period is no multiple of the packets', so that it comes at every place between two."""

    @contextlib.contextmanager
    def held(run: subprocess.Popen[str]) -> Iterator[Injector]:
        with long_interrupts(OTHER, period_ns=7_313_370):
            yield Injector(run)

    found = explained(tmp_path, "tc-mirred", [held], "150 us", rate="100 kpkt/s")
    trace = Trace.read(found.run)
    assert trace.said["senders"] == [OTHER]
    timers = trace.of(VECTOR, id=TIMER, cpu=OTHER)
    long = timers[timers["dur"] >= LONG_NS]
    assert long.size > 100
    # Of usual packets there are no records of this CPU.
    assert np.count_nonzero(trace.records["cpu"] == OTHER) < GENERATED / 20
    parts = pq.read_table(found.run / "causes-parts.parquet").to_pylist()
    theirs = {part["packet"]: part["ns"] for part in parts
              if (part["cause"], part["detail"]) == ("timer", WHERE)}  # fmt: skip
    mine = [place for place in range(found.late["cpu"].size) if reached_by(found.late, place, long)]
    assert len(mine) >= 3
    shares = [theirs.get(place, 0) / found.late["excess_ns"][place] for place in mine]
    # A task that has the device's core is blamed where the interrupt came between queueing what the
    # core shall do and telling it.
    assert np.mean(np.array(shares) > 0.5) >= 0.6, shares
    assert any(row["detail"] == WHERE for row in found.causes["causes"])


def reached_by(late: Columns, place: int, long: npt.NDArray[Any]) -> bool:
    """Whether one of the interrupts began when a packet had come, and it left right behind that."""
    came, left = int(late["ingress_ns"][place]), int(late["egress_ns"][place])
    starts = long["start"].astype(np.int64)
    ends = starts + long["dur"]
    return bool(
        np.any((starts >= came) & (starts < came + 20_000) & (ends < left) & (ends > left - 60_000))
    )


@pytest.mark.apart
def test_of_a_sender_only_what_holds_it_is_recorded(tmp_path: Path) -> None:
    busy = "import time\nend = time.monotonic() + 1\nwhile time.monotonic() < end: pass"
    options = ("--senders", str(OTHER), "--served", "softirq")
    with tracing(tmp_path, str(DUT), *options), long_interrupts(OTHER, period_ns=10_000_000):
        subprocess.run(["taskset", "--cpu-list", str(OTHER), "python3", "-c", busy], check=True)
    trace = Trace.read(tmp_path)
    timers = trace.of(VECTOR, id=TIMER, cpu=OTHER)
    assert np.count_nonzero(timers["dur"] >= LONG_NS) > 20
    of_sender = trace.records[trace.records["cpu"] == OTHER]
    assert set(of_sender["kind"].tolist()) <= {1, 2, 6, 21}
    assert (of_sender["dur"][of_sender["kind"] != 21] >= 5_000).all()
    assert (of_sender["flags"] == 0).all()


FOREIGN = "foreign-net-rx"
SLOW_CALL_NS = 4_000
"""A call of a function that takes less has ended before the next thread has asked for one."""
CALLS_NS = 600_000
"""How long the calls take together that wait when an interrupt comes."""


@pytest.mark.alone
@pytest.mark.timed
def test_another_flow_makes_packets_late(
    injector: Path, namespace: Namespace, tmp_path: Path
) -> None:
    """Its packets wait in the queue of the serving softirq, among those of the run."""
    found = explained(
        tmp_path,
        "tc-mirred",
        [lambda _: flow(injector, namespace, cpu=DUT, helper=OTHER)],
        "300 us",
    )
    found.blames(FOREIGN, least=50, its=undisturbed(found.injections[0]))
    found.claimed(FOREIGN)


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timed
@pytest.mark.skipif(
    not Path(f"/dev/cpu/{DUT}/cpuid").exists(), reason="needs /dev/cpu/*/cpuid (CONFIG_X86_CPUID)"
)
def test_many_function_calls_make_packets_late(injector: Path, tmp_path: Path) -> None:
    """Those that wait when the interrupt comes are one long one."""
    call = call_ns(DUT)
    if call < SLOW_CALL_NS:
        pytest.skip(f"no hypervisor answers for CPUID here: calls of {call} ns make nothing late")
    count = -(-CALLS_NS // call)
    found = explained(
        tmp_path,
        "tc-mirred",
        [lambda _: calls(injector, cpu=DUT, helper=OTHER, count=count, spread_ns=40_000_000)],
        "300 us",
    )
    found.blames("function-call-ipi", "cpuid_smp_cpuid")
    found.claimed("function-call-ipi", "cpuid_smp_cpuid")


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timed
def test_compaction_makes_packets_late_that_a_task_serves(injector: Path, tmp_path: Path) -> None:
    """A full trace tells what the task did that had the core."""
    found = explained(
        tmp_path,
        "fault",
        [lambda _: compaction(injector, cpu=DUT, period_ns=300_000_000, spread_ns=100_000_000)],
        "300 us",
        trace="full",
        rate="10 kpkt/s",
    )
    found.blames("page-fault", "compaction", least=100)
    found.claimed("page-fault", "compaction")


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timed
def test_what_happens_on_another_core_is_never_blamed(
    injector: Path, namespace: Namespace, tmp_path: Path
) -> None:
    """A flow, bursts of timers, and a task without quota: none of them on the device's core.

    A task and the softirq serve there, so that each of them could be a cause.
    """
    hog = ("taskset", "--cpu-list", str(OTHER), "nice", "-n", "19", "timeout", "60", "yes")
    with subprocess.Popen(hog, stdout=subprocess.DEVNULL) as process:
        try:
            found = explained(
                tmp_path,
                "fault",
                [
                    lambda _: flow(injector, namespace, cpu=OTHER, helper=OTHER),
                    lambda _: timers(
                        injector, cpu=OTHER, count=3000, gap_ns=0, period_ns=130_000_000
                    ),
                    lambda _: throttling(injector, [process.pid], cpu=OTHER, helper=OTHER),
                ],
                "100 us",
                dut=f"{LINE}cpus: [1]}}}}",
            )
        finally:
            process.terminate()
    assert all(len(injections) >= 10 for injections in found.injections)
    for cause in (FOREIGN, "throttled"):
        assert found.blamed(cause).sum() <= 0.01 * found.late["cpu"].size, cause
    # The device's core has timers of its own. On that core, the bursts hold a fifth of the packets
    # that are late meanwhile.
    mine, _ = held(found.late, undisturbed(found.injections[1]))
    assert found.blamed("timer")[mine].sum() <= 5 + 0.08 * mine.sum()
    claimed = {row["cause"] for row in found.causes["causes"] if row["claim"] == "cause"}
    assert claimed.isdisjoint({FOREIGN, "throttled"})
