"""`cache`: a task that reads cache lines in a random order."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, Field, field_validator

from tailtap.base.schema import Size
from tailtap.lab.neighbours.options import Busy, Sharing

LARGEST = 1 << 32


class CacheOptions(Busy):
    """How much memory, and how long in which period."""

    size: Size = Field(
        default=8 << 20,
        description="How much memory it reads. As much as a cache holds takes that cache from "
        "others.",
        examples=["32 MiB"],
    )

    @field_validator("size")
    @classmethod
    def _that_fits(cls, size: int) -> int:
        if not 4096 <= size <= LARGEST:
            raise ValueError("it reads from 4 KiB to 4 GiB")
        return size


class Cache(Sharing):
    """Each line says which one is next, so that no prefetcher helps."""

    summary = "Reads cache lines in a random order for a share of the time."
    documentation = "Each line says which one is next, so that no prefetcher helps."
    unit = "lines"
    Options: type[BaseModel] = CacheOptions

    def arguments(self, options: CacheOptions) -> Sequence[str]:
        """How much memory, how long in which period."""
        return [*super().arguments(options), "--size", f"{options.size} B"]
