"""`tailtap explain` against what the kernel was made to do for others: the logs are the truth.

Three injectors delay no packet clearly more than the noise of a virtual machine with two cores, as
was measured there: the core serves between any two of them. A barrier interrupts it for 0.5 us, its
function takes 0.07 us of that; a TLB flush takes 0.6 us, at most 11; what a kworker does to refresh
the counters of memory takes 0.4 us. While kworkers do so a hundred times in a row, the median
latency rises from 22.4 to 23.0 us. Of these it is shown that the trace tells each, and calls with
who asked for them, and that `explain` does not blame other packets on them.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from explaining import DUT, LINE, OTHER, explain, explained, held, moved, undisturbed
from injectors import (
    Injection,
    build,
    call_ns,
    calls,
    compaction,
    flow,
    kworkers,
    membarrier,
    throttling,
    timers,
    tlb_shootdowns,
)
from namespaces import Namespace
from numpy.typing import NDArray
from traces import WORK, Trace

FOREIGN = "foreign-net-rx"
SLOW_CALL_NS = 4_000
"""A call of a function that takes less has ended before the next thread has asked for one."""
CALLS_NS = 600_000
"""How long the calls take together that wait when an interrupt comes."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that disturbs a CPU."""
    return build(tmp_path_factory.mktemp("injector"))


@pytest.mark.alone
@pytest.mark.timed
def test_another_flow_makes_packets_late(
    program: Path, namespace: Namespace, tmp_path: Path
) -> None:
    """Its packets wait in the queue of the serving softirq, among those of the run."""
    found = explained(
        tmp_path, "tc-mirred", [lambda _: flow(program, namespace, cpu=DUT, helper=OTHER)], "300 us"
    )
    found.blames(FOREIGN, least=50, its=undisturbed(found.injections[0]))
    found.claimed(FOREIGN)


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timed
@pytest.mark.skipif(
    not Path(f"/dev/cpu/{DUT}/cpuid").exists(), reason="needs /dev/cpu/*/cpuid (CONFIG_X86_CPUID)"
)
def test_many_function_calls_make_packets_late(program: Path, tmp_path: Path) -> None:
    """Those that wait when the interrupt comes are one long one."""
    call = call_ns(DUT)
    if call < SLOW_CALL_NS:
        pytest.skip(f"no hypervisor answers for CPUID here: calls of {call} ns make nothing late")
    count = -(-CALLS_NS // call)
    found = explained(
        tmp_path,
        "tc-mirred",
        [lambda _: calls(program, cpu=DUT, helper=OTHER, count=count, spread_ns=40_000_000)],
        "300 us",
    )
    found.blames("function-call-ipi", "cpuid_smp_cpuid")
    found.claimed("function-call-ipi", "cpuid_smp_cpuid")


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timed
def test_compaction_makes_packets_late_that_a_task_serves(program: Path, tmp_path: Path) -> None:
    """A full trace tells what the task did that had the core."""
    found = explained(
        tmp_path,
        "fault",
        [lambda _: compaction(program, cpu=DUT, period_ns=300_000_000, spread_ns=100_000_000)],
        "300 us",
        trace="full",
        rate="10 kpkt/s",
    )
    found.blames("page-fault", "compaction", least=100)
    found.claimed("page-fault", "compaction")


@pytest.mark.alone
@pytest.mark.timed
def test_what_happens_on_another_core_is_never_blamed(
    program: Path, namespace: Namespace, tmp_path: Path
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
                    lambda _: flow(program, namespace, cpu=OTHER, helper=OTHER),
                    lambda _: timers(
                        program, cpu=OTHER, count=3000, gap_ns=0, period_ns=130_000_000
                    ),
                    lambda _: throttling(program, [process.pid], cpu=OTHER, helper=OTHER),
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


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timed
def test_what_came_at_another_time_is_no_cause(tmp_path: Path) -> None:
    """The same packets and events, moved against each other, have nothing in common."""
    found = explained(tmp_path, "tc-mirred", [], "p99.9")
    for number, by_ns in enumerate((311_111_111, 1_234_567_891)):
        causes = explain(moved(found.run, tmp_path / f"moved-{number}", by_ns), "p99.9")
        assert causes["late"]["packets"] == found.causes["late"]["packets"]
        assert [row for row in causes["causes"] if row["claim"] == "cause"] == []


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timed
def test_short_interruptions_are_told_and_not_blamed(program: Path, tmp_path: Path) -> None:
    """Barriers, TLB shootdowns and kworkers are in the trace, each with who asked for it."""
    found = explained(
        tmp_path,
        "tc-mirred",
        [
            lambda _: membarrier(program, cpu=DUT, helper=OTHER, count=1000),
            lambda _: tlb_shootdowns(program, cpu=DUT, helper=OTHER, period_ns=70_000_000),
            lambda _: kworkers(program, helper=OTHER, count=10, period_ns=130_000_000),
        ],
        "p99.9",
    )
    trace = Trace.read(found.run)
    names = trace.said["names"]["functions"]
    vmstat = [int(at, 16) for at, name in names.items() if name == "refresh_vm_stats"]
    works = trace.of(WORK)
    works = works[np.isin(works["aux"], vmstat)]
    barriers, flushes, refreshes = (
        [one for one in injections if one.reached and during(trace, one)]
        for injections in found.injections
    )
    for records, injections in (
        (trace.functions("ipi_mb"), barriers),
        (trace.functions("flush_tlb_func"), flushes),
    ):
        assert injections
        mine = [within(records, one) for one in injections]
        # The spinner may lose its core just before.
        assert np.mean([len(some) > 0 for some in mine]) >= 0.9
        senders = np.concatenate([some["id"] for some in mine])
        assert np.mean((senders & 0x3FF) == OTHER) >= 0.9
        threads = {trace.said["names"]["pids"][str(sender >> 10)] for sender in senders}
        assert "injector" in threads
    assert refreshes
    assert all(len(within(works, one)) for one in refreshes)
    for detail, injections in (
        ("ipi_mb", barriers),
        ("flush_tlb_func", flushes),
        ("kworker: refresh_vm_stats", refreshes),
    ):
        _, others = held(found.late, injections)
        assert (found.late["detail"][others] == detail).sum() <= 0.01 * others.sum()


def during(trace: Trace, injection: Injection) -> bool:
    """Whether the kernel was traced from its begin to its end."""
    began, ended = trace.said["started_ns"], trace.said["ended_ns"]
    return bool(began < injection.start_ns and injection.end_ns < ended)


def within(records: NDArray[Any], injection: Injection) -> NDArray[Any]:
    """The records that lie in an injection."""
    ends = records["start"] + records["dur"]
    chosen = (records["start"] >= injection.start_ns) & (ends <= injection.end_ns)
    found: NDArray[Any] = records[chosen]
    return found
