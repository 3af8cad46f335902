"""When a machine was away, what is left around that, and whether pauses come at any time."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from guests import write_guest_run
from stamps import write_stamps
from traced import SECOND, START, STEAL, Record, trace_of, traffic
from traces import TASK

from tailtap.analysis.causes.trace import Spans
from tailtap.analysis.evaluation.values import Column
from tailtap.analysis.runs.reader import finished_runs
from tailtap.analysis.runs.run import Run
from tailtap.analysis.undisturbed import undisturbed_of
from tailtap.analysis.undisturbed.stretches import (
    LATE_NS,
    LEAST_P,
    Left,
    Pauses,
    independence,
    leave_out,
    of_generator,
    of_trace,
)
from tailtap.records.record import Open
from tailtap.records.run import Parameters, RunRecord, TrafficSettings
from tests.simulation.device import CORE, HOG, NEIGHBOUR, SERVED_BIT, SERVES
from tests.simulation.machine import Job

PACKETS, RATE = 1_000, 10_000
GAP = SECOND // RATE
FIVE_MS = 5_000_000


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
    traffic = TrafficSettings(rate=RATE, cpu=NEIGHBOUR, pattern=pattern)
    record = RunRecord(
        number=1, slug="one", repeat=1, variables={}, name="n", status="done", warnings=[],
        parameters=Open(Parameters(traffic=Open(traffic, {})), {}),
    )  # fmt: skip
    return Run("one", record=record, folder=folder / "evaluation")


def test_a_virtual_machine_that_was_stopped(tmp_path: Path) -> None:
    stopped, slept = (SERVED_BIT | state << 32 for state in (4, 1))
    records = [
        Record(START, 10_000, TASK, SERVES, stopped),
        Record(START + FIVE_MS, 10_000, TASK, SERVES, slept),
        Record(START + 2 * FIVE_MS, 10_000, TASK, SERVES, SERVED_BIT),
    ]
    found, _ = of_trace(trace_of(tmp_path, records, "vcpu"))
    assert spans(found) == [("stop", CORE, [START + 10_000], [START + FIVE_MS])]
    assert of_trace(trace_of(tmp_path, records))[0] == []  # a forwarder that somebody stopped


def test_what_a_guest_alone_tells(tmp_path: Path) -> None:
    """Its host was not traced: what was stolen is known by the guest's clock, put on the host's."""
    jobs = [Job(START + number * SECOND // 10, FIVE_MS, STEAL) for number in range(1, 9)]
    found = traffic(5, 1.0, more=jobs)
    folder = write_guest_run(tmp_path / "001-guest", found)
    for name in ("trace.events", "trace.json"):
        (folder / name).unlink()
    [run] = finished_runs(folder)
    without = undisturbed_of(run)
    assert without is not None and without.record.shown
    record = without.record
    assert record.known_by == ["guest-trace"]
    [row] = record.pauses
    assert (row.by, row.cpu, row.pauses) == ("steal", None, len(jobs))
    assert row.pause_ns == pytest.approx(len(jobs) * FIVE_MS, rel=0.01)
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
    assert (by, cpu, start) == ("generator", NEIGHBOUR, due)
    # It sends a packet in 2 us until none is late.
    assert due + FIVE_MS < end < due + FIVE_MS + 150_000


@pytest.mark.parametrize("taken", [False, True])
def test_whoever_had_the_generators_core(tmp_path: Path, taken: bool) -> None:
    """A hog of this kernel is the test's own fault; that a hypervisor took meanwhile is not."""
    run, due = run_of(tmp_path, {500: FIVE_MS}), START + 500 * GAP
    first = Record(START, 0, 21, cpu=NEIGHBOUR)
    stolen = FIVE_MS - 10_000 if taken else 0
    hog = Record(due, FIVE_MS, TASK, HOG, cpu=NEIGHBOUR)
    end = Record(due + FIVE_MS, 0, 21, cpu=NEIGHBOUR, steal=stolen)
    trace = trace_of(tmp_path, [first, end] if taken else [first, hog, end], senders=[NEIGHBOUR])
    found, events = of_trace(trace)
    late = of_generator(run, tmp_path / "ingress.stamps", events, trace.record.senders)
    assert late is not None
    assert [one.by for one in (*found, *late)] == (["steal", "generator"] if taken else [])


def test_of_other_patterns_nobody_knows_when_packets_were_due(tmp_path: Path) -> None:
    run = run_of(tmp_path, {500: FIVE_MS}, pattern="poisson")
    assert of_generator(run, tmp_path / "ingress.stamps", None, ()) is None


@dataclass(frozen=True)
class Case:
    """A device and its load."""

    rate: float
    """Packets a second."""
    load: float
    """Its utilisation."""
    seconds: float = 4.0
    constant: bool = False
    stalls: float = 10.0
    """Of its own, a second."""
    stall_ns: float = 200_000.0
    pauses: float = 10.0
    """From outside, a second."""
    pause_ns: float = 1_000_000.0
    following: float = 0.0
    """Which part of the pauses comes while the load is high, which it is half of the time."""
    swing: float = 0.0
    """By how much the rate is higher and lower, in turns of 50 ms."""


@dataclass(frozen=True)
class Told:
    """The packets of a device, with and without the pauses."""

    ingress_ns: Column
    plain_ns: Column
    """Latencies with pauses."""
    without_ns: Column
    """Those of the same packets without them."""
    pauses: Spans


def simulate(case: Case, rng: np.random.Generator) -> Told:
    """A case: arrivals, service times (gamma) and stalls are the same with pauses and without."""
    length = round(case.seconds * SECOND)
    count = round(case.rate * case.seconds)
    gap = SECOND / case.rate
    came = np.arange(count) * gap if case.constant else np.sort(rng.uniform(0, length, count))
    if case.swing:  # by a change of time, which is slower and faster in turns
        turn, half = SECOND / 10, SECOND / 20
        phase, whole = came % turn, came - came % turn
        edge = half * (1 + case.swing)
        fast, slow = 1 / (1 + case.swing), 1 / (1 - case.swing)
        came = whole + np.where(phase < edge, phase * fast, half + (phase - edge) * slow)
    ingress = came.astype(np.int64)
    service = rng.gamma(2.0, case.load * gap / 2.0, count)
    stalls = intervals(rng, case.stalls, case.stall_ns, length)
    pauses = intervals(rng, case.pauses, case.pause_ns, length)
    if case.following:
        moved = rng.random(pauses.start.size) < case.following
        places = rng.integers(0, max(1, length // (SECOND // 10)), pauses.start.size) * (
            SECOND // 10
        )
        at = places + rng.integers(SECOND // 100, SECOND // 20, pauses.start.size)
        start = np.where(moved, at, pauses.start)
        pauses = Spans.merged(start, start + (pauses.end - pauses.start))
    both = Spans.merged(np.append(stalls.start, pauses.start), np.append(stalls.end, pauses.end))
    return Told(
        ingress,
        departures(ingress, service, both) - ingress,
        departures(ingress, service, stalls) - ingress,
        pauses,
    )


def intervals(rng: np.random.Generator, rate: float, mean_ns: float, length: int) -> Spans:
    """Intervals at random, so many a second, whose lengths are exponential."""
    count = rng.poisson(rate * length / SECOND)
    start = rng.integers(0, length, count)
    return Spans.merged(start, start + np.ceil(rng.exponential(mean_ns, count)).astype(np.int64))


def departures(ingress: Column, service: npt.NDArray[np.float64], away: Spans) -> Column:
    """When packets leave a server that is away at times and then goes on (Lindley's recursion, in
    the time that it is there).
    """
    there = ingress - away.before(ingress)
    served = np.cumsum(service)
    done = served + np.maximum.accumulate(there - (served - service))
    places = away.start - np.append(0, np.cumsum(away.end - away.start))[:-1]
    lengths = np.append(0, np.cumsum(away.end - away.start))
    left: Column = np.ceil(done + lengths[np.searchsorted(places, done)]).astype(np.int64)
    return left


CASES = int(os.environ.get("TAILTAP_QUEUES", "40"))
PERCENTILES = (0.5, 0.9, 0.99, 0.999)
SHORT = Case(1e4, 0.02, stalls=0, constant=True)
"""Each packet is gone before the next one comes, so that packets are independent."""
LOADS = (
    SHORT,
    Case(1e4, 0.3, stall_ns=200_000),
    Case(1e4, 0.7, stall_ns=200_000),
    Case(1e4, 0.3, pauses=40, pause_ns=300_000, constant=True),
)


def simulated(case: Case, seed: int = 1) -> list[tuple[Told, Left]]:
    found = []
    for number in range(CASES):
        made = simulate(case, np.random.default_rng([seed, number]))
        found.append((made, leave_out(made.pauses, made.ingress_ns, made.plain_ns)))
    return found


def above(
    latency: npt.NDArray[np.int64], limits: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    shares: npt.NDArray[np.float64] = (latency[:, None] > limits).mean(axis=0)
    return shares


@pytest.mark.parametrize("case", LOADS)
def test_percentiles_are_those_without_the_pauses(case: Case) -> None:
    """The share of packets above each percentile of the same run without pauses is the same, but
    for chance: four standard errors over all cases."""
    ratios, plain, touched = [], [], []
    for made, left in simulated(case):
        limits = np.quantile(made.without_ns, PERCENTILES, method="inverted_cdf")
        wanted = above(made.without_ns, limits)
        ratios.append(above(made.plain_ns[left.kept], limits) / wanted)
        plain.append(above(made.plain_ns, limits) / wanted)
        touched.append((made.plain_ns != made.without_ns)[left.kept].mean())
        assert left.out.total_ns < 0.3 * case.seconds * SECOND
    off = np.mean(ratios, axis=0) - 1
    assert (np.abs(off) < 4 * np.std(ratios, axis=0) / CASES**0.5 + 0.002).all(), off
    assert np.mean(touched) < 0.001
    assert np.mean(plain, axis=0)[-1] > 5  # which makes the difference


def test_a_device_without_pauses_keeps_every_packet() -> None:
    made = simulate(Case(1e4, 0.5, pauses=0), np.random.default_rng(1))
    left = leave_out(made.pauses, made.ingress_ns, made.plain_ns)
    assert left.kept.all() and left.out.total_ns == 0


def test_a_stretch_ends_when_the_queue_is_gone() -> None:
    """A pause of 1 ms at half the capacity takes another to drain."""
    ingress = np.arange(10_000) * 10_000
    made = np.full(10_000, 5_000)
    for at in range(500, 700):  # stands still from 5 ms to 6 ms, then serves one in 5 us
        made[at] = max(5_000, 6_000_000 + 5_000 * (at - 499) - int(ingress[at]))
    left = leave_out(Spans(np.array([4_999_000]), np.array([6_000_000])), ingress, made)
    assert left.out.start.size == 1
    assert 4_900_000 < left.out.start[0] < 5_000_000
    assert 6_990_000 < left.out.end[0] < 7_100_000
    assert made[left.kept].max() == 5_000


def test_spans() -> None:
    spans = Spans.merged(np.array([10, 0, 4, 30, 7]), np.array([12, 5, 9, 30, 8]))
    assert (spans.start.tolist(), spans.end.tolist()) == ([0, 10], [9, 12])
    assert spans.has(np.array([-1, 0, 8, 9, 11, 12])).tolist() == [0, 1, 1, 0, 1, 0]
    assert spans.before(np.array([-1, 0, 4, 9, 10, 11, 20])).tolist() == [0, 0, 4, 9, 9, 10, 11]
    rest = spans.without(Spans(np.array([2]), np.array([11])))
    assert (rest.start.tolist(), rest.end.tolist()) == ([0, 11], [2, 12])
    inner = spans.within(1, 11)
    assert (inner.start.tolist(), inner.end.tolist(), inner.total_ns) == ([1, 10], [9, 11], 9)
    nothing = Spans.merged(np.empty(0, np.int64), np.empty(0, np.int64))
    assert not nothing.has(np.array([1])).any() and nothing.before(np.array([5])).tolist() == [0]


def test_a_short_pause_takes_no_stall_away() -> None:
    """A pause of 30 us within a stall of 5 ms: most of the stall's packets stay."""
    ingress = np.arange(10_000) * 10_000
    made = np.full(10_000, 5_000)
    for at in range(500, 1_500):  # stands still from 5 ms to 10 ms, then serves one in 5 us
        made[at] = max(5_000, 10_000_000 + 5_000 * (at - 499) - int(ingress[at]))
    left = leave_out(Spans(np.array([6_000_000]), np.array([6_030_000])), ingress, made)
    assert left.out.total_ns < 1_000_000 and left.kept[500:1_500].mean() > 0.9


TURNS = Case(1e4, 0.3, swing=0.5, pauses=20, pause_ns=200_000)
FEW = 10


def p_of(case: Case, seed: int) -> float | None:
    made = simulate(case, np.random.default_rng([5, seed]))
    left = leave_out(made.pauses, made.ingress_ns, made.plain_ns)
    return independence(made.pauses, left, made.ingress_ns)


def test_pauses_at_any_time_are_independent() -> None:
    found = [p_of(TURNS, seed) for seed in range(FEW)]
    assert all(p is not None and p >= LEAST_P for p in found), found
    assert np.mean([p for p in found if p is not None]) > 0.25


def test_pauses_while_the_load_is_high_are_not() -> None:
    dependent = Case(**{**vars(TURNS), "following": 1.0})
    found = [p_of(dependent, seed) for seed in range(FEW)]
    assert all(p is not None and p < LEAST_P for p in found), found


def test_few_pauses_tell_nothing() -> None:
    assert p_of(Case(1e4, 0.3, pauses=0.5), 1) is None
