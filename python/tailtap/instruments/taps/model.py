"""The `tap` part of an experiment file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tailtap.instruments.taps import TAPS
from tailtap.registry import one_of
from tailtap.schema import Ports, Strict, Written


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
        "hardware, the clock of a network card, is refused in the lab: its taps are on virtual "
        "links. docs/hardware.md says how to stamp in hardware.",
        examples=["monotonic"],
    )
    ports: Ports | None = Field(
        default=None,
        description="The network cards at the other ends of the cables of dut.ports: before the "
        "DuT and behind it. It is given where dut.ports is.",
        examples=[["enp2s0f0", "enp2s0f1"]],
    )
