"""`tailtap explain` against what was done on purpose: the injectors' own logs are the truth.

Tasks and timers, and behind them what the kernel does on behalf of others.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from explaining import (
    DUT,
    LINE,
    OTHER,
    explained,
    forwarder_of,
    is_called,
    undisturbed,
)
from injectors import (
    GROUPS,
    Injector,
    compaction,
    flow,
    hog,
    throttling,
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


LONG_NS = 100_000


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
