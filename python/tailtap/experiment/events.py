"""`events`: what is done to the DuT's machine while packets are measured, and when."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field, field_validator

from tailtap.base.document import Misfit
from tailtap.base.schema import Matching, Strict, Time, Written, check_fields, name_words
from tailtap.base.units import format_time
from tailtap.lab.instruments.taps import HARDWARE

if TYPE_CHECKING:
    from tailtap.experiment.model import Experiment

PLACEHOLDERS = ("ingress", "egress", "cpu", "cpus", "pid")
"""The names that a word can have in braces: both ports of the DuT, the first of its CPUs, all of
them with commas, and the process that forwards, by its number on the device's machine."""
DUT, GENERATOR, HOST = "dut", "generator", "host"
MOST = 10_000
"""So many events of a run are told apart by nobody."""


def _words(value: object) -> object:
    """One text is a command line; no shell sees it."""
    if not isinstance(value, str):
        return value
    try:
        return tuple(shlex.split(value))
    except ValueError as error:
        raise ValueError(f"{value!r} is no command: {error}") from error


Words = Annotated[
    tuple[str, ...],
    Field(strict=False, min_length=1),
    BeforeValidator(_words),
    Written("list of words, or a command line", or_schema={"type": "string"}),
]


class Event(Strict):
    """A command that runs at a time, and the time around it that is looked at by itself."""

    at: Time = Field(
        description="When it begins, from the first packet that counts on.", examples=["3 s"]
    )
    run: Words = Field(
        description="The command. {ingress} and {egress}, the ports of the DuT, {cpu}, the first "
        "of dut.cpus, {cpus}, all of them with commas, and {pid}, the process that forwards (for "
        "where: host), are filled in; {{ is a brace.",
        examples=[["nft", "-f", "/srv/new.nft"], "ip link set {egress} down"],
    )
    where: str = Field(
        default=DUT,
        description="Where it runs: dut, generator, host (the device's machine, outside of both), "
        "or one of dut.nodes. In a line dut is the first node.",
        examples=[HOST],
    )
    every: Time | None = Field(
        default=None,
        description="It is repeated so often until packets end. By default it happens once.",
        examples=["1 s"],
    )
    name: Annotated[str, Matching(r"^[a-z][a-z0-9-]{0,31}$", name_words(32, "reload"))] | None = (
        Field(
            default=None,
            description="What it is called in results. By default the program's name.",
            examples=["reload"],
        )
    )
    window: Time = Field(
        default=1_000_000_000,
        description="How long behind its end packets belong to it. It ends at the latest when the "
        "next event begins.",
        examples=["500 ms"],
    )

    @field_validator("run")
    @classmethod
    def _fields_are_known(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        for word in words:
            check_fields(word, PLACEHOLDERS)
        return words

    @field_validator("every")
    @classmethod
    def _every_is_a_time(cls, every: int | None) -> int | None:
        if every == 0:
            raise ValueError("this must be more than nothing")
        return every

    @property
    def called(self) -> str:
        """Its name in results."""
        return self.name or Path(self.run[0]).name


@dataclass(frozen=True)
class Due:
    """One time of an event."""

    at: int
    """In ns from the first packet that counts."""
    event: Event


def due(events: Sequence[Event], duration: int) -> list[Due]:
    """Each time of each event within `duration` ns, in their order."""
    return sorted(_due(events, duration), key=lambda one: one.at)


def _due(events: Sequence[Event], duration: int) -> Iterator[Due]:
    for event in events:
        times = range(event.at, duration, event.every) if event.every else [event.at]
        yield from (Due(at, event) for at in times)


def check_events(experiment: Experiment) -> None:
    """Raises `Misfit` for events that cannot happen, or that nothing could be said of."""
    duration, taps = experiment.traffic.duration, experiment.tap
    places = {DUT, GENERATOR, HOST, *(member.name for member in experiment.dut.members)}
    for number, event in enumerate(experiment.events):
        at: Any = ("events", number)
        if event.at >= duration:
            raise Misfit((*at, "at"), f"packets end after {format_time(duration)}: take an earlier "
                         "time, or more traffic.duration", [("traffic", "duration")])  # fmt: skip
        if event.where not in places:
            known = ", ".join(sorted(places))
            raise Misfit((*at, "where"), f"there is no {event.where!r}: known are {known}")
    if len(due(experiment.events, duration)) > MOST:
        raise Misfit(("events",), f"these are more than {MOST:,}: repeat them less often")
    if experiment.events and experiment.snap is not None:
        raise Misfit(("events",), "these are joined with stamps, and the taps keep packets: leave "
                     "them out", [("tap", "format"), ("evaluation", "match")])  # fmt: skip
    if experiment.events and taps.clock == HARDWARE:
        raise Misfit(("events",), "cards stamp by a clock of their own, which does not say when "
                     "these happened: take tap.clock: monotonic", [("tap", "clock")])  # fmt: skip
