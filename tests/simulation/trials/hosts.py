"""Hosts that are asked what their clocks show: the truth lies in what is said of these."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
from made_records import keeping

from tailtap.analysis.clocks.alignment import Stepped
from tailtap.analysis.clocks.host import HostClock as ByReadings
from tailtap.analysis.clocks.host import host_clock
from tailtap.base.errors import InputError
from tailtap.measure import clocks
from tailtap.records.machine import Environment, Station, Timekeeping
from tailtap.records.run import Found, HostClock, HostClocks
from tests.simulation.clocks import SECOND, Clock, read_by
from tests.simulation.draw import Draw
from tests.simulation.machine import Integers
from tests.simulation.traffic import START_NS
from tests.simulation.trial import Trial

WANDER = 2.5e-8
"""Rates of two quartzes change by 1e-7 against each other at most: `measure.clocks`."""

STEP_NS = 1_000 * SECOND
"""Further than a clock's rate can go in any run."""


@dataclass
class Now:
    """The time of the machine that asks, which is the true one."""

    ns: int = START_NS

    def monotonic_ns(self) -> int:
        self.ns += 50
        return self.ns

    def monotonic(self) -> float:
        return self.ns / SECOND


@dataclass
class Machine:
    """One that is asked; a question takes some time to it, and an answer back."""

    kept: Clock
    now: Now
    random: np.random.Generator
    ways_ns: tuple[int, int]
    rates: list[Timekeeping] = field(default_factory=lambda: [keeping()])

    def clock(self) -> int:
        there, back = (int(way * self.random.uniform(1, 3)) for way in self.ways_ns)
        self.now.ns += there
        shown = int(self.kept.shows(np.array([self.now.ns]))[0])
        self.now.ns += back
        return shown

    def timekeeping(self) -> Timekeeping:
        return self.rates[0]


def machine(draw: Draw, role: str, now: Now, length_ns: int) -> Machine:
    random = draw.stream(role)
    rate = random.choice([-1, 1]) * 10 ** random.uniform(-8, -4)
    wander = WANDER * random.random() if draw.has(f"{role} wanders", 0.4) else 0.0
    bend, kept = 0.0, [keeping()]
    if draw.has(f"{role} is slewed", 0.2):
        ppb = draw.magnitude(f"{role} is slewed", 1, 50_000)
        bend, kept = ppb / 1e9, [keeping(), keeping(rate_ppb=ppb)]
    ahead = draw.between(f"{role} ahead", 0, 10**15)
    at = START_NS + SECOND + int(length_ns * random.random())
    period = SECOND * draw.magnitude(f"{role} period", 60, 1_000)
    clock = Clock(ahead, rate, wander, period, step_at_ns=at, bend=bend)
    ways = (draw.magnitude(f"{role} there", 10, 10**6), draw.magnitude(f"{role} back", 10, 10**6))
    return Machine(clock, now, random, ways, kept)


def run(draw: Draw, _: Path) -> None:
    now, length = Now(), draw.magnitude("length", SECOND // 10, 600 * SECOND)
    stamps, dut = (machine(draw, role, now, length) for role in ("stamps", "dut"))
    machines = {"timestamper": stamps, "dut": stamps if draw.has("one machine", 0.05) else dut}
    if draw.has("a generator beside the stamps", 0.3):
        machines["generator"] = stamps
    steps = draw.has("dut steps", 0.1)
    with patch.object(clocks, "time", now):
        asked = clocks.Clocks(machines, "timestamper")
        asked.look()
        first, now.ns = now.ns, now.ns + length
        for one in (stamps, dut):
            one.rates = one.rates[-1:]
        if steps:
            step_ns = draw.choice("step", (-STEP_NS, STEP_NS))
            dut.kept = replace(dut.kept, step_ns=step_ns, step_at_ns=first)
        asked.look()
        found, warnings = asked.reading()
    if machines["dut"] is stamps:
        assert (found, warnings) == (None, [])
        return
    assert found is not None and found.dut is not None
    slewed = [role for role in ("stamps", "dut") if f"{role} is slewed" in draw.features]
    unsteady = len(slewed) + (slewed[:1] == ["stamps"] and "generator" in machines)
    assert [one.code for one in warnings] == ["clock-unsteady"] * (unsteady + steps), warnings
    if "generator" in machines:
        assert found.generator == found.timestamper == HostClock(timekeeping=stamps.rates[-1])
    if steps:
        assert any("of the dut stepped" in one.message for one in warnings)
        assert found.dut.ahead_ns is None
        return
    told = found.dut
    assert told.at_ns and told.ahead_ns and told.drifts
    clock = ByReadings(told.at_ns, told.ahead_ns, told.drifts, told.bend_ns)
    times = np.linspace(first, now.ns, 50).astype(np.int64)
    theirs, ours = dut.kept.shows(times), stamps.kept.shows(times)
    # Both are rounded to whole nanoseconds, and their difference is one of the DuT's clock.
    off = clock.off_ns(ours) * 1.001 + 4
    assert (np.abs(clock.stamps_ns(theirs) - ours) <= off).all()
    by_card(draw, found, stamps.kept, dut.kept, times)
    quickest = sum(stamps.ways_ns) + sum(dut.ways_ns)
    assert told.widest_ns is not None and told.widest_ns >= quickest * 0.999
    assert told.widest_ns <= 3.1 * quickest + 400
    if not draw.features:
        rate = dut.kept.drift - stamps.kept.drift
        assert told.drifts[0] - 1e-8 <= rate <= told.drifts[1] + 1e-8


def by_card(draw: Draw, clocks: HostClocks, kernel: Clock, dut: Clock, times: Integers) -> None:
    """A card of the timestamper stamps, whose clock was read by its kernel."""
    random = draw.stream("card")
    rate = random.choice([-1, 1]) * 10 ** random.uniform(-8, -4)
    card = Clock(draw.between("card ahead", 0, 2 * 10**18), rate)
    tap = read_by(draw, card, kernel, int(times[0]), int(times[-1]))
    found = Found(clocks=clocks, stations={"timestamper": Station(environment=Environment())})
    try:
        clock = host_clock(found, "the trace", tap)
    except InputError as error:
        assert "stamps is slewed" in draw.features and isinstance(error.__cause__, Stepped)
        return
    assert clock is not None
    if "stamps is slewed" in draw.features:
        return
    ours = card.shows(times)
    off = clock.off_ns(ours) * 1.001 + 4
    assert (np.abs(clock.stamps_ns(dut.shows(times)) - ours) <= off).all()


TRIAL = Trial("hosts", run)
