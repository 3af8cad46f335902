"""When a machine was away, by its trace and by its generator."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from guests import write_guest_run
from stamps import write_stamps
from traced import (
    DUT,
    HOG,
    OTHER,
    SECOND,
    SERVED_BIT,
    SERVER,
    START,
    TASK,
    Record,
    encode,
    steal,
    traffic,
)

from tailtap.analysis.causes.taxonomy import Names, Served
from tailtap.analysis.causes.trace import Trace
from tailtap.analysis.runs.reader import finished_runs
from tailtap.analysis.runs.run import Run
from tailtap.analysis.undisturbed import undisturbed_of
from tailtap.analysis.undisturbed.stretches import LATE_NS, Pauses, of_generator, of_trace
from tailtap.records.record import Open
from tailtap.records.run import Parameters, RunRecord, TrafficSettings
from tailtap.records.trace import TraceRecord

PACKETS, RATE = 1_000, 10_000
GAP = SECOND // RATE
FIVE_MS = 5_000_000


def trace_of(
    folder: Path, records: Sequence[Record], by: str = "task", senders: tuple[int, ...] = ()
) -> Trace:
    path = folder / "trace.events"
    path.write_bytes(encode(records))
    served = Served.one(by, pids=[SERVER], cpus=[DUT])  # type: ignore[arg-type]
    record = TraceRecord(
        cpus=[DUT], senders=list(senders), started_ns=START, ended_ns=START + SECOND, served=None
    )
    return Trace(path, record, served, Names())


def spans(found: Sequence[Pauses]) -> list[tuple[str, int | None, list[int], list[int]]]:
    return [(one.by, one.cpu, one.spans.start.tolist(), one.spans.end.tolist()) for one in found]


def run_of(folder: Path, late: dict[int, int], *, pattern: Any = "constant") -> Run:
    """A run whose packets of these numbers were held, each for so long; those behind follow."""
    due = START + np.arange(PACKETS) * GAP
    left = due.copy()
    for number, held in late.items():
        left[number:] = np.maximum(
            left[number:], left[number] + held + 2_000 * np.arange(PACKETS - number)
        )
    write_stamps(folder / "ingress.stamps", left, np.arange(PACKETS) + 7)
    sent = {
        "schema": "tailtap.generator/1", "sent": PACKETS, "failed": 0, "scheduled_rate": RATE,
        "achieved_rate": RATE, "slip_ns": None, "first_ns": START, "bunched": 0,
    }  # fmt: skip
    (folder / "generator.json").write_text(json.dumps(sent))
    traffic = TrafficSettings(rate=RATE, cpu=OTHER, pattern=pattern)
    record = RunRecord(
        number=1, slug="one", repeat=1, variables={}, name="n", status="done", warnings=[],
        parameters=Open(Parameters(traffic=Open(traffic, {})), {}),
    )  # fmt: skip
    return Run("one", record=record, folder=folder / "evaluation")


def test_steal_of_serving_and_of_sending_cores(tmp_path: Path) -> None:
    at = START + 1_000_000
    sender = Record(at + 9_000_000, 0, 21, cpu=OTHER, steal=400_000)
    elsewhere = Record(at + 9_500_000, 0, 21, cpu=5, steal=400_000)
    first, before = Record(at + 1_000_000, 0, 21, cpu=OTHER), Record(at - 500, 500, TASK, HOG)
    found, _ = of_trace(
        trace_of(
            tmp_path, [before, *steal(at, FIVE_MS), first, sender, elsewhere], senders=(OTHER,)
        )
    )
    assert spans(found) == [
        ("steal", OTHER, [at + 8_600_000], [at + 9_000_000]),
        ("steal", DUT, [at], [at + FIVE_MS]),
    ]


def test_a_hog_of_this_kernel_is_no_pause(tmp_path: Path) -> None:
    found, _ = of_trace(trace_of(tmp_path, [Record(START, FIVE_MS, TASK, HOG)]))
    assert found == []


def test_a_virtual_machine_that_was_stopped(tmp_path: Path) -> None:
    stopped, slept = (SERVED_BIT | state << 32 for state in (4, 1))
    records = [
        Record(START, 10_000, TASK, SERVER, stopped),
        Record(START + FIVE_MS, 10_000, TASK, SERVER, slept),
        Record(START + 2 * FIVE_MS, 10_000, TASK, SERVER, SERVED_BIT),
    ]
    found, _ = of_trace(trace_of(tmp_path, records, "vcpu"))
    assert spans(found) == [("stop", DUT, [START + 10_000], [START + FIVE_MS])]
    assert of_trace(trace_of(tmp_path, records))[0] == []  # a forwarder that somebody stopped


def test_what_a_guest_alone_tells(tmp_path: Path) -> None:
    """Its host was not traced: what was stolen is known by the guest's clock, put on the host's."""
    found = traffic(5, 1.0, (steal, 8, (FIVE_MS, FIVE_MS + 1)))
    folder = write_guest_run(tmp_path / "001-guest", found)
    for name in ("trace.events", "trace.json"):
        (folder / name).unlink()
    [run] = finished_runs(folder)
    without = undisturbed_of(run)
    assert without is not None and without.record.shown
    record = without.record
    assert record.known_by == ["guest-trace"]
    [row] = record.pauses
    assert (row.by, row.cpu, row.pauses) == ("steal", None, len(found.blocks))
    assert row.pause_ns == pytest.approx(len(found.blocks) * FIVE_MS, rel=0.01)
    assert "its host was not traced" in record.words
    plain, left = run.percentile(0.999), without.percentile(0.999)
    assert plain is not None and left is not None
    assert left.value < 100_000 < FIVE_MS // 2 < plain.value


def test_a_generator_that_was_late(tmp_path: Path) -> None:
    found = of_generator(run_of(tmp_path, {500: FIVE_MS, 900: LATE_NS // 2},
                                pattern={"kind": "constant"}),
                         tmp_path / "ingress.stamps", None, ())  # fmt: skip
    assert found is not None
    [(by, cpu, [start], [end])] = spans(found)
    due = START + 500 * GAP
    assert (by, cpu, start) == ("generator", OTHER, due)
    # It sends a packet in 2 us until none is late.
    assert due + FIVE_MS < end < due + FIVE_MS + 150_000


@pytest.mark.parametrize("taken", [False, True])
def test_whoever_had_the_generators_core(tmp_path: Path, taken: bool) -> None:
    """A hog of this kernel is the test's own fault; that a hypervisor took meanwhile is not."""
    run, due = run_of(tmp_path, {500: FIVE_MS}), START + 500 * GAP
    first = Record(START, 0, 21, cpu=OTHER)
    stolen = FIVE_MS - 10_000 if taken else 0
    hog = Record(due, FIVE_MS, TASK, HOG, cpu=OTHER)
    end = Record(due + FIVE_MS, 0, 21, cpu=OTHER, steal=stolen)
    trace = trace_of(tmp_path, [first, end] if taken else [first, hog, end], senders=(OTHER,))
    found, events = of_trace(trace)
    late = of_generator(run, tmp_path / "ingress.stamps", events, trace.record.senders)
    assert late is not None
    assert [one.by for one in (*found, *late)] == (["steal", "generator"] if taken else [])


def test_of_other_patterns_nobody_knows_when_packets_were_due(tmp_path: Path) -> None:
    run = run_of(tmp_path, {500: FIVE_MS}, pattern="poisson")
    assert of_generator(run, tmp_path / "ingress.stamps", None, ()) is None
