"""Packets through a device: when each passes the points of both taps, and what becomes of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tests.simulation.draw import Draw

Integers = npt.NDArray[np.int64]
START_NS = 1_000_000_000_000
NEVER = -1
"""In place of a time that a packet does not have."""


@dataclass(frozen=True)
class Packets:
    """Packets in the order in which they enter the device; their numbers are their places."""

    sent: Integers
    """When each passes the point before the device, in ns of the true clock; ascending."""
    left: Integers
    """When it passes the point behind the device, or `NEVER`: the device dropped it."""

    @property
    def arrived(self) -> Integers:
        """The numbers of those that left the device, in the order in which they left."""
        kept = np.flatnonzero(self.left != NEVER)
        return kept[np.argsort(self.left[kept], kind="stable")]


def packets(draw: Draw) -> Packets:
    """A generator at some rate, with jitter, and a device with a tail, which may drop."""
    number = draw.count("packets", 2, 3_000)
    gap = draw.magnitude("gap", 1_000, 10_000_000)
    jitter = draw.stream("jitter").integers(0, max(1, gap // 2), number)
    sent = START_NS + gap * np.arange(number) + jitter
    least = draw.magnitude("least latency", 200, 100_000)
    latency = least + np.rint(draw.stream("latency").exponential(least, number)).astype(np.int64)
    if draw.has("late packets", 0.5):
        late = draw.stream("late packets")
        latency += (late.random(number) < 0.01) * late.integers(0, 3_000_000, number)
    left = sent + latency
    if not draw.has("overtaking", 0.3):
        left = np.maximum.accumulate(left + np.arange(number))
    if draw.has("device drops", 0.5):
        dropped = draw.stream("device drops")
        left[dropped.random(number) < dropped.choice([0.001, 0.02, 0.3])] = NEVER
    return Packets(sent, left)
