"""`cpu`: a task that computes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import BaseModel

from tailtap.kinds.check import Check
from tailtap.lab.neighbours.options import Busy


class Processor:
    """It takes the core, and touches no memory."""

    summary = "Computes for a share of the time."
    documentation = "What it takes is the core alone: it touches no memory."
    unit = "ns of CPU time"
    Options: type[BaseModel] = Busy

    def diagnose(self) -> Iterator[Check]:
        """Nothing: it is a part of tailtap."""
        return iter(())

    def arguments(self, options: Busy) -> Sequence[str]:
        """How long in which period."""
        return options.arguments()

    def asked(self, options: Busy) -> float:
        """The share of the CPU's time."""
        return options.busy / 100

    def reached(self, done: int, cpu_ns: int, elapsed_ns: int) -> float:
        """The share of the CPU's time."""
        return cpu_ns / elapsed_ns
