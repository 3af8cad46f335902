"""Clocks of taps: what each shows at a time of the true clock."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tailtap.records.datapath import CardReadings, Tap
from tests.simulation.draw import Draw
from tests.simulation.machine import Integers
from tests.simulation.traffic import START_NS

SECOND = 1_000_000_000
TAI_NS = 37 * SECOND
"""By how much TAI is ahead of UTC."""


@dataclass(frozen=True)
class Clock:
    """A clock, by the true one; times in ns."""

    ahead_ns: int = 0
    """By how much it is ahead at `since_ns`, when the traffic begins."""
    drift: float = 0.0
    """How much faster it runs."""
    wander: float = 0.0
    """By how much its rate swings to either side, once in `period_ns`."""
    period_ns: int = 60 * SECOND
    step_ns: int = 0
    """By how much it steps, at `step_at_ns`."""
    step_at_ns: int = 0
    bend: float = 0.0
    """By how much its rate changes then, as where somebody slews it."""
    resolution_ns: int = 1
    """It shows multiples of this."""
    since_ns: int = START_NS

    def ahead(self, times: Integers) -> Integers:
        """By how much it is ahead at these times."""
        since = (times - self.since_ns).astype(float)
        behind = np.maximum(times - self.step_at_ns, 0).astype(float)
        swung = 2 * np.pi / self.period_ns
        ran = self.drift * since + self.bend * behind
        ran += self.wander / swung * np.sin(swung * since)
        stepped: Integers = np.where(times >= self.step_at_ns, self.step_ns, 0)
        return self.ahead_ns + np.rint(ran).astype(np.int64) + stepped

    def shows(self, times: Integers) -> Integers:
        """What it shows at these times: the last step that it made."""
        shown = times + self.ahead(times)
        return shown - shown % self.resolution_ns


def resolution(draw: Draw, name: str) -> int:
    """That of a clock."""
    if not draw.has(f"{name} in steps", 0.25):
        return 1
    return draw.choice(f"{name} in steps", (2, 8, 40, 100, 1_000, 4_096, 1_000_000))


def another(draw: Draw, until_ns: int) -> Clock:
    """A clock that nobody keeps near to the true one, from the start of traffic `until_ns`."""
    ahead_ns = draw.choice("offset", (0, 1, -1, 5_000, TAI_NS, -TAI_NS))
    if draw.has("far apart", 0.6):
        ahead_ns = draw.between("far apart", -(START_NS - 10 * SECOND), 10**15)
    drift = wander = bend = 0.0
    step_ns, step_at_ns = 0, 0
    if draw.has("drift", 0.7):
        drift = draw.choice("drift", (-1, 1)) * draw.magnitude("drift", 1, 50_000) / 1e8
    if draw.has("wander", 0.4):
        wander = draw.magnitude("wander", 1, 100) / 1e8
    if draw.has("step", 0.15):
        step_ns = draw.choice("step", (-1, 1)) * draw.magnitude("step", 10, 10**12)
        step_ns = draw.choice("step", (step_ns, TAI_NS, -TAI_NS))
    if draw.has("slewed", 0.1):
        bend = draw.choice("slewed", (-1, 1)) * draw.magnitude("slewed", 1, 50_000) / 1e8
    if step_ns or bend:
        step_at_ns = draw.between("when", START_NS, until_ns)
    period_ns = SECOND * draw.magnitude("period", 60, 1_000)
    steps = resolution(draw, "their stamps")
    return Clock(ahead_ns, drift, wander, period_ns, step_ns, step_at_ns, bend, steps)


def read_by(draw: Draw, clock: Clock, by: Clock, first: int, last: int) -> Tap:
    """What a card's clock showed, and when by another clock."""
    period = 100_000_000
    regular = np.arange(first - period, last + 2 * period, period)
    ends = np.cumsum(draw.stream("in a row").integers(2_000, 20_000, 20))
    begun = np.concatenate([regular[0] - 10**6 + ends, regular, regular[-1] + 10**6 + ends])
    random = draw.stream("readings")
    took = 250 + random.exponential(draw.magnitude("reading", 10, 10_000), (2, begun.size))
    times = np.cumsum([begun, *took.astype(np.int64)], axis=0)
    shown = by.shows(times[0]), clock.shows(times[1]), by.shows(times[2])
    rows = [(low, seen, high) for low, seen, high in np.column_stack(shown).tolist()]
    return Tap(clock_device="/dev/ptp0", readings=CardReadings(by="extended", times_ns=rows))
