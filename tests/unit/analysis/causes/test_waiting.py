"""Packets whose server is told late, and what a trace that saw nothing says of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from traced import (
    DUT,
    HOG,
    IDLE,
    IRQ,
    KERNEL_BIT,
    KWORKER,
    OTHER,
    SECOND,
    SERVED_BIT,
    SERVER,
    SOFTIRQ,
    START,
    TASK,
    VECTOR,
    WAKE_NS,
    Record,
    Simulated,
    arrivals,
    write_run,
)

from tailtap.analysis.causes import Explained, explain_runs
from tailtap.analysis.causes.record import record, worst_stalls
from tailtap.analysis.causes.trace import Chosen

TOLD = 21
SECONDS, HELD_NS, COUNT = 2.0, 400_000, 40
SERVICE_NS = 2_000
"""Of these, one can be set."""
Held = Callable[[int, int], list[Record]]


def timer(start: int, dur: int) -> list[Record]:
    return [Record(start, dur, VECTOR, 1, cpu=OTHER)]


def device(start: int, dur: int) -> list[Record]:
    return [Record(start, dur, IRQ, 24, cpu=OTHER)]


def task(start: int, dur: int) -> list[Record]:
    return [Record(start, dur, TASK, HOG, HOG, cpu=OTHER)]


def worker(start: int, dur: int) -> list[Record]:
    return [Record(start, dur, TASK, KWORKER, KERNEL_BIT, cpu=OTHER)]


def steal(start: int, dur: int) -> list[Record]:
    """It is seen when the next core is told, which has a record for that alone."""
    return [Record(start + dur, 0, TOLD, DUT, cpu=OTHER, steal=dur)]


NAMED: dict[Held, tuple[str, str]] = {
    timer: ("timer", "local timer, on the generator's CPU 0"),
    device: ("device-interrupt", "virtio0-input.0, on the generator's CPU 0"),
    task: ("task", "hog, on the generator's CPU 0"),
    worker: ("kernel-thread", "kworker/1:2, on the generator's CPU 0"),
    steal: ("steal", "on the generator's CPU 0"),
}


def run(folder: Path, held: Held, **changes: Any) -> tuple[Path, list[int]]:
    """A run whose server is told of no packet while its sender is held, and when that was."""
    random = np.random.default_rng(3)
    ingress = arrivals(5_000, SECONDS, random)
    starts = np.sort(random.choice(int(SECONDS * SECOND) // HELD_NS - 2, COUNT, replace=False))
    windows = [START + int(at) * HELD_NS + 100_000 for at in starts]
    egress, busy, free = np.zeros_like(ingress), [], START
    for place, arrived in enumerate(ingress.tolist()):
        told = next((at + HELD_NS for at in windows if at <= arrived < at + HELD_NS), arrived)
        begun = max(told + WAKE_NS, free)
        free = begun + SERVICE_NS
        busy.append((begun, free))
        egress[place] = free
    records, at = [Record(START - 500_000, 0, TOLD, DUT, cpu=OTHER)], START - 1_000_000
    for start, end in busy:
        if start > at:
            records.append(Record(at, start - at, IDLE, 1))
        records.append(Record(start, end - start, TASK, SERVER, SERVED_BIT))
        at = end
    records += [one for window in windows for one in held(window, HELD_NS)]
    met = np.full(ingress.size, -1, np.int64)
    found = Simulated(ingress, egress, [], records, met, at + 10_000)
    return write_run(folder, found, **{"senders": [OTHER], "cpus": [DUT], **changes}), windows


def explained(folder: Path) -> Explained:
    [found] = explain_runs([folder], late="100 us")
    return found


@pytest.mark.parametrize("held", [*NAMED], ids=lambda held: held.__name__)
def test_what_holds_the_generator_s_cpu_is_named(tmp_path: Path, held: Held) -> None:
    folder, windows = run(tmp_path / "001-held", held)
    found = explained(folder)
    cause, detail = NAMED[held]
    late = pq.read_table(folder / "causes-late.parquet").to_pydict()
    assert len(late["cause"]) >= COUNT
    assert set(zip(late["blamed"], late["detail"], strict=True)) == {(cause, detail)}
    [row] = [row for row in record(found).causes if row.claim == "cause"]
    assert (row.cause, row.detail) == (cause, detail)
    assert ("generator: isolated-cpus" in row.knobs) == (held in (task, device))
    assert all(name.startswith("generator: ") for name in row.knobs)
    stalls = pq.read_table(folder / "causes-stalls.parquet")["start_ns"].to_numpy()
    assert all(any(at <= start < at + HELD_NS for at in windows) for start in stalls.tolist())


def test_without_a_trace_of_it_the_wait_has_no_other_name(tmp_path: Path) -> None:
    folder, _ = run(tmp_path / "001-untraced", timer, senders=[])
    explained(folder)
    late = pq.read_table(folder / "causes-late.parquet")
    assert set(late["detail"].to_pylist()) <= {"its thread slept", ""}


STAMP_NS = 500
"""How much of its service is left when a packet leaves."""
SOFTIRQS = {"by": "softirq", "vector": 3, "pids": [], "cpus": [DUT]}


def unseen(
    folder: Path, *, stamped_behind_ns: int = 0, gathered: bool = False
) -> tuple[Path, Chosen, Chosen]:
    """A run whose core a task has; packets of some windows come all at their end.

    In every other window the trace tells nothing of the softirqs that serve them or, `gathered`,
    their sum. Returned are the folder, and which packets waited in windows of the one and the other
    kind.
    """
    random = np.random.default_rng(5)
    ingress = arrivals(5_000, SECONDS, random)
    starts = np.sort(random.choice(int(SECONDS * SECOND) // HELD_NS - 2, COUNT, replace=False))
    egress, free, records = np.zeros_like(ingress), START, list[Record]()
    sums: dict[int, tuple[int, int, int]] = {}
    kind = np.full(ingress.size, -1)
    for place, arrived in enumerate(ingress.tolist()):
        told = arrived
        for number, at in enumerate(START + starts * HELD_NS):
            if at <= arrived < at + HELD_NS - 100_000:
                told, kind[place] = int(at) + HELD_NS, number % 2
        begun = max(told + 1_000, free)
        free = begun + SERVICE_NS
        egress[place] = free - STAMP_NS + stamped_behind_ns
        if kind[place] != 1:
            records.append(Record(begun, SERVICE_NS, SOFTIRQ, 3))
        elif gathered:
            window = (kind[:place] == 1) & (egress[:place] > told)
            first = int(egress[:place][window][0]) - SERVICE_NS if window.any() else begun
            sums[told] = first, free, int(window.sum()) + 1
    records += [
        Record(first, SERVICE_NS * count, SOFTIRQ, 3, end - first << 32 | count, flags=1)
        for first, end, count in sums.values()
    ]
    ended = free + 10_000
    records.append(Record(START - 1_000_000, ended - START + 1_000_000, TASK, HOG, HOG))
    found = Simulated(ingress, egress, [], records, np.full(ingress.size, -1, np.int64), ended)
    return write_run(folder, found, served=SOFTIRQS, cpus=[DUT]), kind == 0, kind == 1


def blamed(folder: Path) -> tuple[Explained, list[str]]:
    [found] = explain_runs([folder], late="95 us")
    return found, pq.read_table(folder / "causes-late.parquet")["blamed"].to_pylist()


def test_nothing_is_said_of_packets_that_left_in_no_softirq_of_the_trace(tmp_path: Path) -> None:
    folder, told, hidden = unseen(tmp_path / "001-blind")
    found, causes = blamed(folder)
    assert min(told.sum(), hidden.sum()) > 20
    assert causes.count("waiting") == told.sum()
    assert causes.count("unexplained") == hidden.sum()
    assert record(found).unexplained.packets == hidden.sum()
    [warning] = [one for one in found.warnings if one.code == "trace-blind"]
    assert f"{hidden.sum()} late packets left while hog had the core" in warning.message
    lines = {line.words.partition(": ")[2] for line in worst_stalls(found, COUNT)}
    assert any("nobody had told its core" in line for line in lines)
    assert any(line.startswith("the trace saw nothing that served it; hog had") for line in lines)


@pytest.mark.parametrize("changes", [{"stamped_behind_ns": 20_000}, {"gathered": True}])
def test_what_may_have_been_seen_is_told(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Stamps made behind the core tell nothing of its trace, and a sum of softirqs is seen."""
    folder, told, hidden = unseen(tmp_path / "001-seen", **changes)
    found, causes = blamed(folder)
    assert causes.count("waiting") == told.sum() + hidden.sum()
    assert not [one for one in found.warnings if one.code == "trace-blind"]
