"""Latencies whose distribution is known exactly, one after the other as they depend on each other.

A law says which latency is exceeded by a share of the packets. A series is one of shares, uniform
whatever its dependence, put through the law.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from tails import START, tail_tables

from tailtap.analysis.evaluation.tables import columns
from tailtap.analysis.evaluation.values import Blocks
from tailtap.analysis.runs.tail import SECOND_NS, StoredTail
from tests.simulation.draw import Draw

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
INDICES = (0.5, 0.1)
"""Clusters for each late packet, where these come together."""


@dataclass(frozen=True)
class Law:
    """A distribution of latencies."""

    exceeded: Callable[[Floats], Floats]
    """The latency in ns that each share (above 0, at most 1) of the packets exceeds."""
    xi: float
    """The shape of its tail."""
    step_ns: int = 1

    def at(self, share: npt.ArrayLike) -> Integers:
        """The same as stamps have it, rounded down to a step."""
        steps = self.exceeded(np.asarray(share, np.float64)) // self.step_ns
        return steps.astype(np.int64) * self.step_ns

    def above(self, limit: int) -> float:
        """The share of the packets that stamps have above a limit, by bisection."""
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self.at(middle) > limit else (low, middle)
        return high


def pareto(least: float, scale: float, xi: float) -> Law:
    """A generalised Pareto distribution, which it is above every threshold."""
    return Law(lambda share: least + scale * growth(-np.log(share), xi), xi)


def growth(logs: npt.ArrayLike, xi: float) -> Floats:
    return np.asarray(logs, np.float64) if xi == 0 else np.expm1(xi * np.asarray(logs)) / xi


def law(draw: Draw) -> Law:
    """A device: how quick it is, its tail, what stalls it, and the steps of its stamps."""
    least = draw.magnitude("least latency", 200, 50_000)
    scale = draw.magnitude("scale", 500, 50_000)
    found = pareto(least, scale, draw.choice("xi", (-1.0, -0.3, 0.0, 0.2, 0.7)))
    if draw.has("stalls", 0.3):
        stalled = float(draw.stream("stalls").choice([1e-4, 1e-3, 1e-2]))
        most = least + 20 * scale
        quick = found.exceeded

        def exceeded(share: Floats) -> Floats:
            late = most + 3 * scale * -np.log(np.minimum(share / stalled, 1))
            early = quick(np.clip((share - stalled) / (1 - stalled), 1e-300, 1))
            return np.where(share < stalled, late, np.minimum(early, most))

        found = Law(exceeded, 0.0)
    if draw.has("steps", 0.3):
        found = Law(found.exceeded, found.xi, int(draw.stream("steps").choice([100, 1_000, 4_000])))
    return found


def shares(random: np.random.Generator, count: int, index: float) -> Floats:
    """Uniform shares of which small ones come in clusters of 1 / `index` on average.

    X = max((1 - index) X_before, index Z) with Z Frechet has this extremal index (ARMAX).
    """
    fresh = index / random.exponential(size=count)
    fresh[0] /= index
    fading = -np.log1p(-index) * np.arange(count) if index < 1 else np.zeros(count)
    logs = np.maximum.accumulate(np.log(fresh) + fading) - fading if index < 1 else np.log(fresh)
    return np.asarray(-np.expm1(-np.exp(-logs)))


def stored(latency: Integers, rate: int = 10_000, lost: int = 0) -> StoredTail:
    """What an evaluation keeps of packets that were sent at this rate (pkt/s)."""
    ingress = START + np.arange(latency.size) * SECOND_NS // rate
    exceedances, floor, blocks, width = tail_tables(latency, ingress)
    position, came, took = columns(exceedances)
    kept = Blocks(width, *columns(blocks))
    return StoredTail("made", latency.size, lost, float(rate), floor, position, came, took, kept)


def few(packets: int, position: Integers, latency: Integers, rate: int) -> StoredTail:
    """A run of which only these late packets are kept, by their places in it."""
    nothing = np.empty(0, np.int64)
    blocks = Blocks(1, *(nothing,) * 4)
    sent = position * SECOND_NS // rate
    return StoredTail("made", packets, 0, float(rate), 0, position, sent, latency, blocks)
