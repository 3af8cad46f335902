"""The `tap` part of an experiment file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tailtap.kinds.registry import one_of
from tailtap.lab.instruments.taps import TAPS
from tailtap.records.schema import Ports, Strict, Written

PASSIVE = "passive"
"""The kind of taps that stamps copies of packets."""
HARDWARE = "hardware"
"""The clock of network cards."""


class Taps(Strict):
    """What stamps packets before and after the DuT."""

    kind: Annotated[str, one_of(lambda: TAPS), Written("name")] = Field(
        default="inline",
        description="What stamps the packets.",
        examples=["inline"],
    )
    clock: Literal["monotonic", "hardware"] = Field(
        default="monotonic",
        description="Whose clock the stamps are of: monotonic is the kernel's CLOCK_MONOTONIC. "
        "hardware, the clock of network cards, is for testbeds whose cables have splitters: both "
        "cards behind them stamp every packet, by one clock. It is refused in the lab, whose taps "
        "are on virtual links. docs/howto/hardware.md says more.",
        examples=["monotonic"],
    )
    ports: Ports | None = Field(
        default=None,
        description="The network cards at the other ends of the cables of dut.ports: before the "
        "DuT and behind it. It is given where dut.ports is.",
        examples=[["enp2s0f0", "enp2s0f1"]],
    )
