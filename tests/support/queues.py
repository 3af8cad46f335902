"""A device of one queue and one server, with stalls of its own, and pauses from outside."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tailtap.analysis.evaluation.values import Column
from tailtap.analysis.undisturbed.stretches import Spans

SECOND = 1_000_000_000


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
class Simulated:
    """The packets of a device, with and without the pauses."""

    ingress_ns: Column
    plain_ns: Column
    """Latencies with pauses."""
    without_ns: Column
    """Those of the same packets without them."""
    pauses: Spans


def simulate(case: Case, rng: np.random.Generator) -> Simulated:
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
    return Simulated(
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
