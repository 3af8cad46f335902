"""The CPU that hands packets over: what holds it up while the server's core waits to be told."""

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
from tailtap.analysis.causes.record import record
from tailtap.analysis.causes.remedies import Knob

TOLD = 21
SECONDS, HELD_NS, COUNT = 2.0, 400_000, 40
SERVICE_NS = 2_000
KNOBS = (Knob("steal", ("steal",), 1, "no"), Knob("isolated-cpus", ("task",), 1, "boot"))
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
    [found] = explain_runs([folder], late="100 us", knobs=KNOBS)
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
    assert row.knobs == (["generator: isolated-cpus"] if held in (task, device) else [])
    stalls = pq.read_table(folder / "causes-stalls.parquet")["start_ns"].to_numpy()
    assert all(any(at <= start < at + HELD_NS for at in windows) for start in stalls.tolist())


def test_without_a_trace_of_it_the_wait_has_no_other_name(tmp_path: Path) -> None:
    folder, _ = run(tmp_path / "001-untraced", timer, senders=[])
    late = pq.read_table(folder / "causes-late.parquet") if explained(folder) else None
    assert late is not None
    assert set(late["detail"].to_pylist()) <= {"its thread slept", ""}
