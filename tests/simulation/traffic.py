"""Packets through a device: when each passes the points of both taps, and what becomes of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.simulation.device import Device, Load, device
from tests.simulation.draw import Draw
from tests.simulation.machine import Integers

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
    device: Device | None = None
    """What its cores did."""

    @property
    def arrived(self) -> Integers:
        """The numbers of those that left the device, in the order in which they left."""
        kept = np.flatnonzero(self.left != NEVER)
        return kept[np.argsort(self.left[kept], kind="stable")]


def packets(draw: Draw) -> Packets:
    """A generator at some rate, with jitter, and the device of the seed, which may drop."""
    number = draw.count("packets", 2, 3_000)
    gap = draw.magnitude("gap", 1_000, 10_000_000)
    jitter = draw.stream("jitter").integers(0, max(1, gap // 2), number)
    sent = START_NS + gap * np.arange(number) + jitter
    least = draw.magnitude("least latency", 200, 100_000)
    shortest = max(1, min(least, gap // 2))
    service = shortest + draw.stream("service").integers(0, max(1, shortest // 4), number)
    passed = device(draw, Load(sent, service, gap), START_NS - 1_000_000)
    left = passed.left + max(0, least - gap // 2)
    if draw.has("overtaking", 0.3):
        left += draw.stream("overtaking").exponential(least, number).astype(np.int64)
    if draw.has("device drops", 0.5):
        dropped = draw.stream("device drops")
        left[dropped.random(number) < dropped.choice([0.001, 0.02, 0.3])] = NEVER
    return Packets(passed.sent, left, passed)
