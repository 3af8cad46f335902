"""Who had the core is a fact, however few its stalls; and what the tail is without its time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_records import rewrite
from program import in_process
from traced import (
    DUT,
    SERVER,
    START,
    Block,
    Record,
    Simulated,
    arrivals,
    barrier,
    hog,
    kworker,
    random_blocks,
    simulate,
    ticks,
    write_run,
)

from tailtap.analysis.causes import Explained, explain_runs
from tailtap.analysis.causes.late import ENOUGH, FEW
from tailtap.analysis.causes.record import estimate_words, record
from tailtap.analysis.causes.taxonomy import Named, Served, holds
from tailtap.analysis.causes.trace import RUNNABLE, WAKEUP
from tailtap.base.units import format_time
from tailtap.records.causes import CauseRow, CausesRecord

SECONDS = 2.0
RATE = 20_000
POLLS = {"by": "poll", "pids": [SERVER], "cpus": [DUT]}
MS = 1_000_000


def hogs() -> list[Block]:
    """Each 100 ms for 2 ms, two of them for longer."""
    longer = {3: 3 * MS, 12: 3 * MS}
    return [Block(START + 3 * MS + at * 100 * MS, longer.get(at, 2 * MS), hog) for at in range(19)]


def run(tmp_path: Path, blocks: list[Block], **changes: Any) -> tuple[Path, Simulated]:
    random = np.random.default_rng(7)
    simulated = simulate(arrivals(RATE, SECONDS, random), blocks, random)
    return write_run(tmp_path / "001-facts", simulated, **changes), simulated


def row_of(content: CausesRecord, cause: str) -> CauseRow:
    [row] = [row for row in content.causes if row.cause == cause]
    return row


def explained(folder: Path, late: str = "p99.9") -> tuple[Explained, CausesRecord]:
    [found] = explain_runs([folder], late=late)
    return found, record(found)


def test_few_stalls_are_enough_for_who_had_the_core(tmp_path: Path) -> None:
    found, content = explained(run(tmp_path, hogs(), served=POLLS)[0])
    row = row_of(content, "task")
    assert row.stalls == content.late.stalls == 2 < FEW
    assert (row.claim, row.basis) == ("cause", "core")
    assert content.unexplained.packets == 0
    assert sum(one.delay_ns for one in content.causes) >= 0.95 * content.late.delay_ns
    assert all(name.cause == "task" for name in content.worst)
    assert found.joined.late.threshold_ns == content.late.threshold_ns


def test_where_stalls_are_few_coincidences_are_tested_lower(tmp_path: Path) -> None:
    """A thread that serves may have slept by itself: two stalls say nothing, and more are found."""
    folder, simulated = run(tmp_path, hogs())
    _, content = explained(folder)
    latency = np.sort(simulated.egress - simulated.ingress)
    late, looked = content.late, content.late.looked
    assert looked is not None and late.stalls == 2
    assert late.packets == (latency > late.threshold_ns).sum()
    assert late.threshold_ns > looked.threshold_ns >= late.threshold_ns // 8
    assert looked.packets == (latency > looked.threshold_ns).sum()
    assert FEW <= looked.stalls <= len(hogs())
    row = row_of(content, "task")
    assert (row.claim, row.basis) == ("cause", "chance")
    assert row.stalls == 2 and row.p_value is not None and row.p_value <= 0.01


def test_candidates_are_what_the_audit_leaves_as_they_are_typed(tmp_path: Path) -> None:
    folder, _ = run(tmp_path, hogs())
    answers = {"isolated-cpus": "not-met", "groups": "met", "stat-interval": "not-met"}
    audit = {name: {"answer": answer} for name, answer in answers.items()}
    tuning = {"cpus": "1", "role": "bare-metal", "interfaces": [], "audit": audit}
    rewrite(folder / "run.json", tuning=tuning)
    done = in_process("explain", folder, "--quiet")
    line = "tailtap host bootline isolated-cpus --cpus 1 --role bare-metal"
    assert f"candidates, not tried here: {line}; estimate without " in done.stdout
    assert "stat-interval" not in done.stdout and "groups" not in done.stdout


@pytest.mark.parametrize(
    ("waits", "basis"),
    [("runnable", "core"), ("woken", "core"), ("for quota", "core"), ("else", "chance")],
)
def test_what_had_the_core_of_a_thread_that_could_run_is_a_fact(
    tmp_path: Path, waits: str, basis: str
) -> None:
    """The trace says so; of a thread that waited for its group's quota the task was not the reason,
    and before or after a stall it says nothing."""
    random = np.random.default_rng(7)
    simulated = simulate(arrivals(RATE, SECONDS, random), hogs(), random)
    kind, aux = (WAKEUP, 0) if waits == "woken" else (RUNNABLE, int(waits == "for quota"))
    away = 10 * MS if waits == "else" else 0
    simulated.records += [
        Record(block.start + away, block.dur, kind, SERVER, aux) for block in simulated.blocks
    ]
    _, content = explained(write_run(tmp_path / "001-waits", simulated))
    # Whoever waits for its quota is kept from the core by that.
    row = row_of(content, "throttled" if waits == "for quota" else "task")
    assert (row.stalls, row.basis) == (2, basis)


def test_enough_stalls_are_looked_at_as_they_are(tmp_path: Path) -> None:
    folder, _ = run(
        tmp_path, random_blocks(hog, 2 * ENOUGH, (MS, 2 * MS), SECONDS, np.random.default_rng(2))
    )
    _, content = explained(folder, "500 us")
    assert content.late.stalls >= FEW
    assert content.late.looked is None


@pytest.mark.parametrize("removed", [hog, kworker])
def test_the_tail_without_a_cause_is_that_of_a_run_without_it(tmp_path: Path, removed: Any) -> None:
    """The simulation makes the same run without the cause: what the estimate is of."""
    random = np.random.default_rng(11)
    blocks = [
        *random_blocks(hog, 8, (1_900_000, 2_100_000), SECONDS, random),
        *random_blocks(kworker, 30, (400_000, 500_000), SECONDS, random),
        *random_blocks(barrier, 30, (20_000, 60_000), SECONDS, random),
        *ticks(SECONDS),
    ]
    folder, simulated = run(tmp_path, blocks)
    found, content = explained(folder, "p99.5")
    kept = [block for block in simulated.blocks if block.made is not removed]
    again = np.random.default_rng(7)
    other = simulate(arrivals(RATE, SECONDS, again), kept, again)
    truth, measured = (np.sort(one.egress - one.ingress) for one in (other, simulated))
    rank = int(np.ceil(0.995 * measured.size)) - 1
    names = [name for name in found.joined.laid.rows.names
             if name.cause == ("task" if removed is hog else "kernel-thread")]  # fmt: skip
    assert found.removal is not None
    without = found.removal.without(names)
    assert without.p == 0.995
    assert (without.measured_ns, without.measured_worst_ns) == (measured[rank], measured[-1])
    assert without.percentile_ns == pytest.approx(max(truth[rank], without.least_ns), rel=0.1)
    assert without.worst_ns == pytest.approx(truth[-1], rel=0.1)
    nothing = found.removal.without(())
    assert (nothing.percentile_ns, nothing.worst_ns) == (measured[rank], measured[-1])
    everything = found.removal.without(found.labels.names)
    assert everything.percentile_ns == everything.worst_ns == everything.least_ns
    words = estimate_words(names, everything)
    assert f"p99.5 {format_time(int(measured[rank]))} to at most" in words
    row = row_of(content, "task")
    assert row.without == found.removal.without([Named("task", row.detail)])


def test_facts_are_those_of_a_server_that_wanted_the_core() -> None:
    softirq, poll, task = (Served.one(by) for by in ("softirq", "poll", "task"))
    hogged, irq, idle = (
        Named("task", "x"),
        Named("device-interrupt", "eth0"),
        Named("idle-exit", ""),
    )
    assert holds(hogged, [softirq]) and holds(hogged, [poll]) and holds(hogged, [softirq, poll])
    assert not holds(hogged, [task])
    assert not holds(hogged, [softirq, task])
    assert not holds(hogged, [softirq], guest=True)
    for servers in ([softirq], [task]):
        assert holds(irq, servers) and holds(Named("steal", ""), servers)
        assert not holds(idle, servers)
        assert holds(Named("task", "x, on the generator's CPU 0"), servers)
        assert holds(Named("idle-exit", "until the IPI was entered"), servers)
        for name in ("own-work", "behind", "gap", "mixed", "unexplained"):
            assert not holds(Named(name, ""), servers)
