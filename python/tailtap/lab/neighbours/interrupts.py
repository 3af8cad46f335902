"""`interrupts`: a task that a timer wakes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import BaseModel, Field

from tailtap.kinds.check import Check
from tailtap.lab.neighbours.options import OnCpus


class InterruptsOptions(OnCpus):
    """How many per second."""

    rate: Annotated[int, Field(ge=1, le=100_000)] = Field(
        description="How often per second a timer interrupts each of its CPUs, and wakes a task "
        "that sleeps again.",
        examples=[1000],
    )


class Interrupts:
    """Each time costs an interrupt, and a switch to the task and back."""

    summary = "Is woken by a timer at a rate."
    documentation = "Each time costs an interrupt, and a switch to the task and back."
    unit = "wake-ups"
    Options: type[BaseModel] = InterruptsOptions

    def diagnose(self) -> Iterator[Check]:
        """Nothing: it is a part of tailtap."""
        return iter(())

    def arguments(self, options: InterruptsOptions) -> Sequence[str]:
        """How many times per second."""
        return ["--per-second", str(options.rate)]

    def asked(self, options: InterruptsOptions) -> float:
        """Times per second."""
        return options.rate

    def reached(self, done: int, cpu_ns: int, elapsed_ns: int) -> float:
        """Times per second."""
        return done * 1e9 / elapsed_ns
