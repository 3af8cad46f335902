"""`memory`: a task that copies memory at a rate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import BaseModel, Field

from tailtap.kinds.check import Check
from tailtap.lab.neighbours.options import OnCpus


class MemoryOptions(OnCpus):
    """How much per second."""

    rate: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        description="How many megabytes each of its CPUs copies per second; as many are read as "
        "written. The two areas have 128 MiB each, more than most caches hold.",
        examples=[1000],
    )


class Memory:
    """It takes bandwidth of memory from others."""

    summary = "Copies memory at a rate."
    documentation = "It takes bandwidth of memory, and lines of the last cache."
    unit = "bytes"
    Options: type[BaseModel] = MemoryOptions

    def diagnose(self) -> Iterator[Check]:
        """Nothing: it is a part of tailtap."""
        return iter(())

    def arguments(self, options: MemoryOptions) -> Sequence[str]:
        """How many bytes per second."""
        return ["--per-second", str(options.rate * 1_000_000)]

    def asked(self, options: MemoryOptions) -> float:
        """Bytes per second."""
        return options.rate * 1_000_000

    def reached(self, done: int, cpu_ns: int, elapsed_ns: int) -> float:
        """Bytes per second."""
        return done * 1e9 / elapsed_ns
