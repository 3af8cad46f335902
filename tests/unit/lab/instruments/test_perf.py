"""Counts of processors: what two readings of their counters say of the time between them."""

from __future__ import annotations

import shutil

import pytest
from pydantic import ValidationError

from tailtap.lab.instruments.events import (
    DEFAULT,
    HARDWARE,
    SOFTWARE,
    Encoding,
    Events,
    UnknownEvent,
    encodings,
)
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


RAW = 4
with_perf = pytest.mark.skipif(shutil.which("perf") is None, reason="perf is not installed")


@with_perf
def test_names_are_encoded_as_the_kernel_takes_them() -> None:
    """linux/perf_event.h has these numbers; whether this machine counts them does not matter."""
    kernel, hypervisor = 1 << 5, 1 << 6
    assert dict(encodings(["cycles", "page-faults:u", "r1a8", "task-clock"])) == {
        "cycles": (Encoding(HARDWARE, 0),),
        "page-faults:u": (Encoding(SOFTWARE, 2, flags=kernel | hypervisor),),
        "r1a8": (Encoding(RAW, 0x1A8),),
        "task-clock": (Encoding(SOFTWARE, 1),),
    }


@with_perf
def test_ours_are_those_of_perf() -> None:
    """A modifier that changes nothing makes perf be asked."""
    for name, ours in DEFAULT.items():
        [told] = encodings([f"{name}:ukh"])[f"{name}:ukh"]
        assert told == ours


@with_perf
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("instrucions", "there is no event 'instrucions' here: did you mean 'instructions'"),
        ("duration_time", "duration_time is perf's own: choose what a kernel counts"),
        ("qqqqqqqq", "here: this machine has instructions, branches,"),
    ],
)
def test_what_nothing_counts_is_told_with_its_place(name: str, said: str) -> None:
    with pytest.raises(UnknownEvent) as caught:
        encodings(["branches", name])
    assert caught.value.position == 1
    assert str(caught.value).startswith("counters.events[1]: ")
    assert said in caught.value.reason


@pytest.mark.parametrize(
    "name",
    ["", "a b", "{cycles,branches}", "cycles,branches", "-x", "--event", "cpu/event=1", "a\nb"],
)
def test_one_name_is_one_event(name: str) -> None:
    with pytest.raises(ValidationError, match=r"write one event|at least|at most"):
        Events.model_validate({"events": [name]})


@pytest.mark.parametrize("name", ["cpu/event=0xc4,umask=1/uk", "sched:sched_switch", "probe:tcp*"])
def test_names_that_perf_may_know(name: str) -> None:
    assert Events.model_validate({"events": [name]}).events == [name]


def test_an_event_is_counted_once() -> None:
    with pytest.raises(ValidationError, match="cycles is there twice: leave one out"):
        Events.model_validate({"events": ["cycles", "branches", "cycles"]})
