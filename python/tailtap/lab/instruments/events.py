"""Which events are counted: `counters` of an experiment file, and what the kernel calls them.

`perf` knows every name: the kernel's own, those of processors by vendor, tracepoints, probes, terms
in slashes, modifiers. It says how it would ask the kernel for an event when it is told to be
verbose (`perf stat -vv`), whether or not this machine can count it. The events of `counters: true`
need no `perf`.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple, TypeAlias

from pydantic import Discriminator, Field, Tag, field_validator

from tailtap.base.errors import InputError
from tailtap.base.schema import Matching, Strict, Written
from tailtap.remote.local import LocalHost, require_program

HARDWARE, SOFTWARE, CACHE = 0, 1, 3
_DTLB, _MISS, _DUMMY = 3, 1 << 16, 9


class Encoding(NamedTuple):
    """Fields of `struct perf_event_attr` that tell one event from others; perf_event_open(2)."""

    kind: int
    config: int
    config1: int = 0
    config2: int = 0
    flags: int = 0
    """Bits such as `exclude_kernel`."""
    access: int = 0
    """`bp_type` of a breakpoint."""


DEFAULT: Mapping[str, Encoding] = {
    "instructions": Encoding(HARDWARE, 1),
    "branches": Encoding(HARDWARE, 4),
    "dTLB-loads": Encoding(CACHE, _DTLB),
    "dTLB-load-misses": Encoding(CACHE, _DTLB | _MISS),
    "cpu-migrations": Encoding(SOFTWARE, 4),
    "context-switches": Encoding(SOFTWARE, 3),
}
"""The events of `counters: true`; linux/perf_event.h. They are those of the article on control
groups and added latency. The last two are counted by the kernel, wherever it runs; a migration is
counted on the CPU that a task comes to."""

MOST = 64
"""Of events in one file: each is a descriptor on each CPU."""
LISTED = 12
_ATTRIBUTE = re.compile(r"^  (\{ \w+, \w+ \}|\w+)\s{2,}(0x[0-9a-f]+|\d+)", re.MULTILINE)
_FLAGS = {"exclude_user": 4, "exclude_kernel": 5, "exclude_hv": 6, "exclude_idle": 7}
"""Places of bits in the flags. perf leaves out what guests do unless somebody asks for it, which a
count of all that a CPU does must not."""
_ADDRESS, _LENGTH = "{ bp_addr, config1 }", "{ bp_len, config2 }"

Name = Annotated[
    str,
    Matching(
        r"^[A-Za-z][^\s,{}/]{0,99}(/[^\s{}/]{0,200}/)?[A-Za-z:]{0,9}$",
        "write one event as `perf list` names it, such as instructions, sched:sched_switch or "
        "cpu/event=0xc4/",
    ),
]


class Events(Strict):
    """Which events, and of what."""

    events: Annotated[list[Name], Field(min_length=1, max_length=MOST)] = Field(
        default_factory=lambda: list(DEFAULT),
        description="The events, as `perf list` names them. By default those of `counters: true`.",
        examples=[["instructions", "page-faults", "sched:sched_switch"]],
    )
    by: Literal["cpu", "group", "machine"] = Field(
        default="cpu",
        description="What is counted: all on the DuT's CPUs; the control group of its "
        "containers; all CPUs (docs/reference/platforms.md).",
        examples=["group"],
    )

    @field_validator("events")
    @classmethod
    def _each_once(cls, events: list[str]) -> list[str]:
        for place, name in enumerate(events):
            if name in events[:place]:
                raise ValueError(f"{name} is there twice: leave one out")
        return events


Counters: TypeAlias = Annotated[
    Annotated[bool, Tag("word")] | Annotated[Events, Tag("mapping")],
    Discriminator(lambda value: "mapping" if isinstance(value, Mapping | Events) else "word"),
    Written("`true`, `false`, or `{events: […], by: …}`"),
]
"""The key `counters` of an experiment file."""


def events_of(counters: bool | Events) -> Events | None:
    """What a value of `counters` asks for; None for nothing."""
    return counters if isinstance(counters, Events) else Events() if counters else None


class UnknownEvent(InputError):
    """A name that nothing here counts."""

    def __init__(self, position: int, reason: str) -> None:
        """That of the event at this `position` of the list."""
        super().__init__(f"counters.events[{position}]: {reason}")
        self.position, self.reason = position, reason


def encodings(names: Sequence[str]) -> Mapping[str, Sequence[Encoding]]:
    """How the kernel is asked for each event; several where kinds of cores or units have their own.

    Raises `UnknownEvent` for a name that perf does not know here, `MachineError` without perf.
    """
    return {name: _encodings(name, place) for place, name in enumerate(names)}


@functools.lru_cache(maxsize=4 * MOST)
def _encodings(name: str, place: int) -> Sequence[Encoding]:
    if name in DEFAULT:
        return (DEFAULT[name],)
    require_program("perf")
    command = ["perf", "stat", "-vv", "-a", f"--event={name}", "--", "true"]
    found = tuple(dict.fromkeys(_told(LocalHost().run(command, check=False).stderr)))
    if not found:
        raise UnknownEvent(place, f"there is no event {name!r} here: {_others(name)}")
    if (SOFTWARE, _DUMMY) in {row[:2] for row in found}:
        raise UnknownEvent(place, f"{name} is perf's own: choose what a kernel counts")
    return found


def _told(verbose: str) -> Iterator[Encoding]:
    """What perf asked the kernel for; it leaves out what is 0."""
    for part in verbose.split("perf_event_attr:\n")[1:]:
        fields = {name: int(value, 0) for name, value in _ATTRIBUTE.findall(part)}
        flags = sum(1 << bit for name, bit in _FLAGS.items() if fields.get(name))
        yield Encoding(
            fields.get("type", 0),
            fields.get("config", 0),
            fields.get(_ADDRESS, fields.get("config1", 0)),
            fields.get(_LENGTH, fields.get("config2", 0)),
            flags,
            fields.get("bp_type", 0),
        )


def _others(name: str) -> str:
    """What of the names that this machine has might be meant."""
    said = LocalHost().run(["perf", "list", "--raw-dump"], check=False).stdout
    listed = list(dict.fromkeys([*DEFAULT, *said.split()]))
    close = difflib.get_close_matches(name, listed, n=2)
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    plain = [one for one in listed if ":" not in one]
    return (
        f"this machine has {', '.join(plain[:LISTED])} and {len(listed) - len(plain[:LISTED])} "
        "more, which `perf list` shows"
    )
