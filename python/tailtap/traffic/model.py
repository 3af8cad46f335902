"""The `traffic` part of an experiment file."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator, model_validator

from tailtap.schema import Cpu, Rate, Size, Strict, Time
from tailtap.units import format_time

MIN_SIZE = 64
"""Smallest Ethernet frame in bytes, with its 4-byte frame check sequence."""
MAX_SIZE = 9018
"""Largest frame in bytes: 9000 bytes of payload, the Ethernet header and the check sequence."""
MAX_FLOWS = 254
"""Flows differ in the last byte of the source address."""
MAX_PACKETS = 2**32
"""The packet id is 32 bits wide."""


class Traffic(Strict):
    """What is sent: a constant rate of UDP packets of one size."""

    rate: Rate = 10_000
    size: Size = MIN_SIZE
    duration: Time = 10_000_000_000
    warm_up: Time = 1_000_000_000
    flows: Annotated[int, Field(ge=1, le=MAX_FLOWS)] = 1
    cpu: Cpu = 0

    @field_validator("size")
    @classmethod
    def _size_is_a_frame(cls, size: int) -> int:
        if not MIN_SIZE <= size <= MAX_SIZE:
            raise ValueError(
                f"{size} B is no Ethernet frame: with its check sequence one has "
                f"{MIN_SIZE} B to {MAX_SIZE} B"
            )
        return size

    @model_validator(mode="after")
    def _sends_something(self) -> Traffic:
        if self.packets < 1:
            raise ValueError(
                f"not a single packet fits: {self.rate} pkt/s for {format_time(self.duration)}"
            )
        if self.packets >= MAX_PACKETS:
            raise ValueError(
                f"{self.packets} packets are more than the 32-bit ids can tell apart: "
                "lower traffic.rate or traffic.duration, and raise repeat"
            )
        return self

    @property
    def seconds(self) -> float:
        """How long the generator sends, warm-up included."""
        return (self.warm_up + self.duration) / 1e9

    @property
    def packets(self) -> int:
        """How many packets the measurement sends, without the warm-up."""
        return self.rate * self.duration // 1_000_000_000
