"""What neighbours have in common: options, and what these ask for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from pydantic import Field, field_validator

from tailtap.base.check import Check
from tailtap.base.schema import Cpus, Strict, Time

Percent = Annotated[int, Field(ge=1, le=100)]


class OnCpus(Strict):
    """A neighbour on some CPUs."""

    cpus: Cpus = Field(
        description="The CPUs that it loads, each by a thread of its own. They may be those of the "
        "DuT.",
        examples=[[1]],
    )

    nice: Annotated[int, Field(ge=-20, le=19)] = Field(
        default=0,
        description="How much it gives way to others: from -20, which takes the core from ordinary "
        "tasks, to 19.",
        examples=[-20],
    )


class Busy(OnCpus):
    """A neighbour that wants a share of its CPUs."""

    busy: Percent = Field(
        default=50,
        description="How much of each period it works, in per cent of a CPU's time.",
        examples=[20],
    )
    period: Time = Field(
        default=10_000_000,
        description="It works at the beginning of each period, and sleeps for the rest.",
        examples=["100 ms"],
    )

    @field_validator("period")
    @classmethod
    def _no_shorter_than_its_clock(cls, period: int) -> int:
        if not 100_000 <= period <= 10_000_000_000:
            raise ValueError("a period lasts from 100 us to 10 s")
        return period


class Rated(OnCpus):
    """A neighbour that does something so often per second."""

    rate: int


class _Own:
    """A neighbour that is a part of tailtap."""

    def diagnose(self) -> Iterator[Check]:
        """Nothing: it needs nothing of its own."""
        return iter(())


class Sharing(_Own):
    """A kind of neighbour that is asked for a share of its CPUs' time."""

    def arguments(self, options: Any) -> Sequence[str]:
        """How long in which period."""
        return ["--busy", str(options.busy), "--period", f"{options.period} ns"]

    def asked(self, options: Any) -> float:
        """The share of the CPU's time."""
        share: float = options.busy / 100
        return share

    def reached(self, done: int, cpu_ns: int, elapsed_ns: int) -> float:
        """The share of the CPU's time."""
        return cpu_ns / elapsed_ns


class Paced(_Own):
    """A kind of neighbour that is asked for so many `unit` per second."""

    def arguments(self, options: Any) -> Sequence[str]:
        """How many per second."""
        return ["--per-second", f"{self.asked(options):.0f}"]

    def asked(self, options: Any) -> float:
        """So many per second."""
        rate: float = options.rate
        return rate

    def reached(self, done: int, cpu_ns: int, elapsed_ns: int) -> float:
        """So many per second."""
        return done * 1e9 / elapsed_ns
