"""Options that neighbours have in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from tailtap.records.schema import Cpus, Strict, Time

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

    def arguments(self) -> list[str]:
        """Those of ``tailtap load``."""
        return ["--busy", str(self.busy), "--period", f"{self.period} ns"]
