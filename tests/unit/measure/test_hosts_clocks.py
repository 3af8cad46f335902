"""Machines whose clocks are made up: what broke is found, and one clock is one."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from made_records import keeping

from tailtap.measure.clocks import Clocks
from tailtap.records.machine import Timekeeping
from tailtap.records.record import as_json


@dataclass
class Made:
    """A machine whose clock is ahead by `ahead_ns`."""

    ahead_ns: int = 0
    kept: list[Timekeeping] = field(default_factory=lambda: [keeping()])

    def clock(self) -> int:
        return time.monotonic_ns() + self.ahead_ns

    def timekeeping(self) -> Timekeeping:
        return self.kept.pop(0) if len(self.kept) > 1 else self.kept[0]


def told(machines: dict[str, Made], between: Any = None) -> tuple[dict[str, Any], list[str]]:
    clocks = Clocks(machines, "timestamper")
    clocks.look()
    if between is not None:
        between()
    clocks.look()
    found, warnings = clocks.reading()
    assert {one["code"] for one in warnings} <= {"clock-unsteady"}
    return {} if found is None else as_json(found), [one["message"] for one in warnings]


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
