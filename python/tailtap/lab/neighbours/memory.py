"""`memory`: a task that copies memory at a rate."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from tailtap.lab.neighbours.options import Paced, Rated


class MemoryOptions(Rated):
    """How much per second."""

    rate: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        description="How many megabytes each of its CPUs copies per second; as many are read as "
        "written. The two areas have 128 MiB each, more than most caches hold.",
        examples=[1000],
    )


class Memory(Paced):
    """It takes bandwidth of memory from others."""

    summary = "Copies memory at a rate."
    documentation = "It takes bandwidth of memory, and lines of the last cache."
    unit = "bytes"
    Options: type[BaseModel] = MemoryOptions

    def asked(self, options: MemoryOptions) -> float:
        """Bytes per second."""
        return options.rate * 1_000_000
