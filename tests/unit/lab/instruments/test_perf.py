"""Counts of processors: what two readings of their counters say of the time between them."""

from __future__ import annotations

from tailtap.lab.instruments.events import DEFAULT as EVENTS
from tailtap.lab.instruments.perf import Count, Snapshot, missing, window

SECOND = 1_000_000_000


def reading(at_ns: int, *cpus: dict[str, Count | None]) -> Snapshot:
    """Counters of CPUs 0, 1, …; an event that is not named stands still."""
    still: dict[str, Count | None] = dict.fromkeys(EVENTS, Count(5, at_ns, at_ns))
    by_cpu = {
        cpu: {name: [] if one is None else [one] for name, one in {**still, **counters}.items()}
        for cpu, counters in enumerate(cpus)
    }
    return Snapshot(at_ns, list(EVENTS), by_cpu)


def test_a_scope_is_named_and_holds_its_cpus_alone() -> None:
    before = reading(SECOND, {"cpu-migrations": Count(1, 1, 1)}, {"cpu-migrations": Count(7, 1, 1)})
    after = reading(
        3 * SECOND,
        {"cpu-migrations": Count(11, SECOND, SECOND)},
        {"cpu-migrations": Count(10, SECOND, SECOND)},
    )
    dut, machine = window(before, after, [1]), window(before, after, None)
    assert (dut.scope, dut.cpus, dut.elapsed_ns) == ("dut.cpus", [1], 2 * SECOND)
    assert (machine.scope, machine.cpus) == ("machine", [0, 1])
    assert dut.events["cpu-migrations"] == 3
    assert machine.events["cpu-migrations"] == 13
    assert dut.by_cpu == machine.by_cpu
    assert machine.by_cpu["0"]["cpu-migrations"] == 10
    assert list(machine.events) == list(machine.by_cpu["1"]) == list(EVENTS)
    assert machine.estimated == []
    assert window(before, after, [1, 0]).events == machine.events


def test_what_a_processor_does_not_count_is_missing_and_not_zero() -> None:
    none = dict.fromkeys(EVENTS, None)
    found = window(
        reading(0, {}, {"branches": None}), reading(SECOND, {}, {"branches": None}), None
    )
    assert found.events == {**dict.fromkeys(EVENTS, 0), "branches": None}
    assert found.by_cpu["0"]["branches"] == 0
    nothing = window(reading(0, none), reading(SECOND, none), [0])
    assert nothing.events == none
    assert nothing.estimated == []
    [warning] = missing(nothing)
    assert warning["code"] == "counters-missing"
    assert all(name in warning["message"] for name in EVENTS)
    assert missing(window(reading(0, {}), reading(SECOND, {}), None)) == ()


def test_counters_that_take_turns_are_projected_and_named() -> None:
    before = reading(0, {"branches": Count(100, 10, 10), "instructions": Count(0, 10, 0)})
    after = reading(SECOND, {"branches": Count(350, 110, 60), "instructions": Count(0, 110, 0)})
    found = window(before, after, [0])
    assert found.events["branches"] == 250 * 100 // 50
    assert found.events["instructions"] is None  # its turn never came
    assert found.estimated == ["instructions", "branches"]
