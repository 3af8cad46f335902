"""Which events are counted: what perf makes of their names, and what of them is refused."""

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
    events_of,
)

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


def test_what_is_asked_for() -> None:
    assert events_of(False) is None
    assert events_of(True) == Events()
    assert (Events().events, Events().by) == (list(DEFAULT), "cpu")
