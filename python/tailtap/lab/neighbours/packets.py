"""`packets`: packets that the kernel receives for somebody else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, Field

from tailtap.lab.neighbours.options import Paced, Rated


class PacketsOptions(Rated):
    """How many per second, and how many at once."""

    rate: Annotated[int, Field(ge=1, le=10_000_000)] = Field(
        description="How many datagrams per second the receive softirq of each of its CPUs "
        "delivers, each of them to 16 sockets.",
        examples=[50_000],
    )
    burst: Annotated[int, Field(ge=1, le=64)] = Field(
        default=64,
        description="How many of them come at once. The softirq delivers these before anything "
        "else that the CPU has received.",
        examples=[16],
    )


class Packets(Paced):
    """They are sent and received on the same CPU, by way of a loopback interface."""

    summary = "Has the receive softirq deliver packets of its own at a rate."
    documentation = (
        "They are in a network namespace that no other program sees. A burst of 64 takes some "
        "0.3 ms, in which the softirq serves nobody else."
    )
    unit = "datagrams"
    Options: type[BaseModel] = PacketsOptions

    def arguments(self, options: PacketsOptions) -> Sequence[str]:
        """How many per second, how many at once."""
        return [*super().arguments(options), "--burst", str(options.burst)]
