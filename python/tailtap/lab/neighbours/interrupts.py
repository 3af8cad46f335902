"""`interrupts`: a task that a timer wakes."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from tailtap.lab.neighbours.options import Paced, Rated


class InterruptsOptions(Rated):
    """How many per second."""

    rate: Annotated[int, Field(ge=1, le=100_000)] = Field(
        description="How often per second a timer interrupts each of its CPUs, and wakes a task "
        "that sleeps again.",
        examples=[1000],
    )


class Interrupts(Paced):
    """Each time costs an interrupt, and a switch to the task and back."""

    summary = "Is woken by a timer at a rate."
    documentation = "Each time costs an interrupt, and a switch to the task and back."
    unit = "wake-ups"
    Options: type[BaseModel] = InterruptsOptions
