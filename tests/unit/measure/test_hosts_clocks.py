"""Machines whose clocks are made up: what is told of them holds, and what broke is found."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import Any

import pytest
from made_records import keeping

from tailtap.measure.clocks import Clocks
from tailtap.records.machine import Timekeeping
from tailtap.records.record import as_json


@dataclass
class Made:
    """A machine whose clock is ahead by `ahead_ns` and runs faster by `drift`."""

    ahead_ns: int = 0
    drift: float = 0.0
    there_us: float = 0.0
    """How long a question takes to it at least; an answer takes `back_us`."""
    back_us: float = 0.0
    kept: list[Timekeeping] = field(default_factory=lambda: [keeping()])
    began: int = field(default_factory=time.monotonic_ns)

    def shows(self, ours: int) -> int:
        return ours + self.ahead_ns + round(self.drift * (ours - self.began))

    def clock(self) -> int:
        _wait(self.there_us * random.uniform(1, 3))
        shown = self.shows(time.monotonic_ns())
        _wait(self.back_us * random.uniform(1, 3))
        return shown

    def timekeeping(self) -> Timekeeping:
        return self.kept.pop(0) if len(self.kept) > 1 else self.kept[0]


def _wait(us: float) -> None:
    until = time.monotonic_ns() + round(us * 1000)
    while time.monotonic_ns() < until:
        pass


def told(machines: dict[str, Made], between: Any = None) -> tuple[dict[str, Any], list[str]]:
    clocks = Clocks(machines, "timestamper")
    clocks.look()
    if between is not None:
        between()
    clocks.look()
    found, warnings = clocks.reading()
    assert {one["code"] for one in warnings} <= {"clock-unsteady"}
    return {} if found is None else as_json(found), [one["message"] for one in warnings]


@pytest.mark.parametrize("seed", range(20))
def test_the_truth_lies_between_what_is_told(seed: int) -> None:
    """Questions and answers take different times; both clocks differ from ours."""
    random.seed(seed)
    machines = {
        role: Made(
            random.randrange(-(10**15), 10**15),
            random.uniform(-1e-4, 1e-4),
            random.uniform(0, 100),
            random.uniform(0, 100),
        )
        for role in ("timestamper", "dut")
    }
    clocks, warnings = told(machines)
    assert warnings == []
    stamps, dut = machines["timestamper"], machines["dut"]
    for at, (least, most) in zip(clocks["dut"]["at_ns"], clocks["dut"]["ahead_ns"], strict=True):
        ours = stamps.began + round((at - stamps.ahead_ns - stamps.began) / (1 + stamps.drift))
        assert least <= dut.shows(ours) - stamps.shows(ours) <= most
    quickest = sum(one.there_us + one.back_us for one in machines.values()) * 1000
    assert clocks["dut"]["widest_ns"] >= quickest * 0.99
    least, most = clocks["dut"]["drifts"]
    assert least <= dut.drift - stamps.drift <= most


def test_one_machine_has_one_clock() -> None:
    one = Made()
    assert told({"timestamper": one, "dut": one}) == ({}, [])


def test_what_is_told_of_who_shares_the_machine_with_the_stamps() -> None:
    here, there = Made(), Made(10**9)
    clocks, _ = told({"generator": here, "timestamper": here, "dut": there})
    assert clocks["generator"] == clocks["timestamper"] == {"timekeeping": as_json(here.kept[0])}
    assert set(clocks["dut"]) > {"ahead_ns", "drifts", "timekeeping"}


def test_a_clock_that_stepped_is_not_told() -> None:
    """A machine that slept, or another one at the same address: further than a rate can go."""
    there = Made()

    def step() -> None:
        there.ahead_ns -= 10**10

    clocks, [warning] = told({"timestamper": Made(), "dut": there}, step)
    assert warning == (
        "the clock of the machine of the dut stepped, or changed its rate during the run"
    )
    assert "ahead_ns" not in clocks["dut"]


@pytest.mark.parametrize(
    "kept",
    [
        [keeping(), keeping(rate_ppb=500)],
        [keeping(slewing_ns=90_000), keeping()],
    ],
)
def test_a_clock_that_was_set_meanwhile_is_told_of(kept: list[Timekeeping]) -> None:
    _, [warning] = told({"timestamper": Made(), "dut": Made(kept=kept)})
    assert "the dut was slewed, or made to run at another rate during the run" in warning
