"""The `tap` part of an experiment file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from tailtap.base.registry import one_of
from tailtap.base.schema import Ports, Size, Strict, Written
from tailtap.lab.instruments.taps import TAPS

PASSIVE = "passive"
"""The kind of taps that stamps copies of packets."""
HARDWARE = "hardware"
"""The clock of network cards."""
STAMPS, PCAP = "stamps", "pcap"
"""What taps write, which is the suffix of their files as well."""
LEAST_SNAP, MOST_SNAP = 64, 65_535


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
    format: Literal["stamps", "pcap"] | None = Field(
        default=None,
        description="What is written of each packet: its stamp, id and length, or in a pcap its "
        "first bytes as well. By default stamps, and pcap where evaluation.match is transactions.",
        examples=["pcap"],
    )
    snap_length: Size = Field(
        default=512,
        description="How many bytes of each packet are kept in a pcap.",
        examples=["1514 B"],
    )

    @field_validator("snap_length")
    @classmethod
    def _snap_has_headers(cls, length: int) -> int:
        if not LEAST_SNAP <= length <= MOST_SNAP:
            raise ValueError(f"a pcap keeps {LEAST_SNAP} B to {MOST_SNAP} B of each packet")
        return length
