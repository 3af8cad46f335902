"""`tailtap explain` against what was done on purpose: the injectors' own logs are the truth.

Tasks and timers; `test_explain_kernel` has what the kernel does on behalf of others.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from explaining import DUT, LINE, OTHER, Explanation, explained, forwarder_of, held
from injectors import Injector, build, hog, holding, throttling, timers


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that disturbs a CPU."""
    return build(tmp_path_factory.mktemp("injector"))


@pytest.mark.alone
@pytest.mark.timed
@pytest.mark.parametrize(
    ("forwarder", "napi"),
    [("fault", "softirq"), pytest.param("tc-mirred", "threads", marks=pytest.mark.slow)],
)
def test_a_hog_makes_packets_late_that_a_task_serves(
    program: Path, tmp_path: Path, forwarder: str, napi: str
) -> None:
    """Of the forwarder, or of the kernel: it polls the port in a thread of its own."""
    found = explained(
        tmp_path, forwarder, [lambda _: hog(program, cpu=DUT, busy_ns=2_000_000)], "300 us",
        napi=napi,
    )  # fmt: skip
    mine, others = held(found.late, found.injections[0])
    blamed = found.blamed("task", "injector")
    assert found.causes["served"]["by"] == "task"
    assert mine.sum() > 200
    assert blamed[mine].mean() >= 0.95
    assert blamed[others].sum() <= 0.01 * others.sum()
    row = next(row for row in found.causes["causes"] if row["detail"] == "injector")
    assert row["claim"] == "cause"
    assert row["p_value"] <= 0.001
    assert "isolated-cpus" in row["knobs"]


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timed
def test_a_hog_makes_packets_late_in_the_node_whose_core_it_takes(
    program: Path, tmp_path: Path
) -> None:
    """Two nodes, each on a core of its own: the softirq serves the first, a task the second."""
    found = explained(
        tmp_path, "fault", [lambda _: hog(program, cpu=DUT, busy_ns=2_000_000)], "300 us",
        dut=LINE + "cpus: [0, 1], taps: hops}}",
    )  # fmt: skip
    mine, others = held(found.late, found.injections[0])
    blamed = found.blamed("task", "injector")
    second = found.late["segment"] == 2
    assert [(row["by"], row["cpus"]) for row in found.causes["segments"]] == [
        ("softirq", [OTHER]),
        ("task", [DUT]),
    ]
    assert mine.sum() > 200
    assert (blamed & second)[mine].mean() >= 0.95
    assert blamed[others].sum() <= 0.01 * others.sum()


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.timed
def test_a_hog_makes_packets_late_where_a_task_and_the_softirq_serve(
    program: Path, tmp_path: Path
) -> None:
    """Two nodes on one core: what keeps either from serving makes packets late.

    The hog comes at irregular times. The softirq serves on top of it, so that a shift by a period,
    give or take 0.2 ms, finds it again: of a regular one the shifts say p = 0.4 %.
    """
    found = explained(
        tmp_path,
        "fault",
        [lambda _: hog(program, cpu=DUT, busy_ns=2_000_000, spread_ns=80_000_000)],
        "300 us",
        dut=LINE + "cpus: [1]}}",
    )
    mine, others = held(found.late, found.injections[0])
    blamed = found.blamed("task", "injector")
    assert found.causes["served"]["by"] == "several"
    assert mine.sum() > 200
    assert blamed[mine].mean() >= 0.95
    assert blamed[others].sum() <= 0.01 * others.sum()


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.timed
def test_a_hog_on_another_core_is_never_blamed(program: Path, tmp_path: Path) -> None:
    found = explained(
        tmp_path, "fault", [lambda _: hog(program, cpu=OTHER, busy_ns=2_000_000)], "p99.9"
    )
    assert found.injections[0]
    assert "injector" not in found.late["detail"]
    assert all(row["detail"] != "injector" for row in found.causes["causes"])


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
def test_a_quota_makes_packets_late_that_a_task_serves(program: Path, tmp_path: Path) -> None:
    """Whoever has the core meanwhile: here a task that gives way to any other one."""

    def injecting(run: subprocess.Popen[str]) -> contextlib.AbstractContextManager[Injector]:
        return throttling(program, [forwarder_of(run)], cpu=DUT, helper=OTHER, spread_ns=80_000_000)

    with idle_task():
        found = explained(tmp_path, "fault", [injecting], "300 us")
    mine, others = held(found.late, found.injections[0])
    blamed = found.blamed("throttled")
    assert mine.sum() > 1000
    assert blamed[mine].mean() >= 0.95
    assert blamed[others].sum() <= 0.01 * others.sum()
    [row] = found.rows("throttled")
    assert row["claim"] == "cause"


def held_before_the_device(folder: Path) -> Explanation:
    """A run whose generator's CPU is held while a task has the device's."""
    with idle_task():
        return explained(folder, "tc-mirred", [lambda run: holding(run, cpu=OTHER)], "300 us")


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timed
def test_what_waits_before_the_device_is_no_task_s(tmp_path: Path) -> None:
    """The device's core was told of nothing, so that its task kept nobody waiting.

    Other tasks of the machine may: those that take the core while packets are there.
    """
    found = held_before_the_device(tmp_path)
    mine, _ = held(found.late, found.injections[0])
    assert mine.sum() > 200
    assert found.blamed("waiting", "nobody had told its core")[mine].mean() >= 0.95
    assert not found.blamed("task", "yes")[mine].any()


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.timed
def test_few_others_wait_before_the_device(tmp_path: Path) -> None:
    """Some do, while the host has the CPU that steers packets."""
    found = held_before_the_device(tmp_path)
    _, others = held(found.late, found.injections[0])
    blamed = found.blamed("waiting", "nobody had told its core")
    assert blamed[others].sum() <= 0.01 * blamed.sum()


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timed
def test_timers_make_packets_late_that_the_softirq_serves(program: Path, tmp_path: Path) -> None:
    """A softirq preempts a hog, but not an interrupt: timers that expire at once take long.

    They come at irregular times. What comes every 100 ms and lasts 1 ms finds one in a hundred
    shifts of itself again, which the shifts cannot tell from a coincidence.
    """
    found = explained(
        tmp_path,
        "tc-mirred",
        [lambda _: timers(program, cpu=DUT, count=8000, gap_ns=0, spread_ns=40_000_000)],
        "300 us",
    )
    assert found.causes["served"]["by"] == "softirq"
    timer = found.rows("timer")
    assert timer and timer[0]["claim"] == "cause"
    assert (found.late["excess_ns"] > 0).all()
