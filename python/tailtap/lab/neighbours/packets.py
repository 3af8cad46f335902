"""`packets`: packets that the kernel receives for somebody else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import BaseModel, Field

from tailtap.kinds.check import Check
from tailtap.lab.neighbours.options import OnCpus


class PacketsOptions(OnCpus):
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


class Packets:
    """They are sent and received on the same CPU, by way of a loopback interface."""

    summary = "Has the receive softirq deliver packets of its own at a rate."
    documentation = (
        "They are in a network namespace that no other program sees. A burst of 64 takes some "
        "0.3 ms, in which the softirq serves nobody else."
    )
    unit = "datagrams"
    Options: type[BaseModel] = PacketsOptions

    def diagnose(self) -> Iterator[Check]:
        """Nothing: it is a part of tailtap."""
        return iter(())

    def arguments(self, options: PacketsOptions) -> Sequence[str]:
        """How many per second, how many at once."""
        return ["--per-second", str(options.rate), "--burst", str(options.burst)]

    def asked(self, options: PacketsOptions) -> float:
        """Datagrams per second."""
        return options.rate

    def reached(self, done: int, cpu_ns: int, elapsed_ns: int) -> float:
        """Datagrams per second."""
        return done * 1e9 / elapsed_ns
