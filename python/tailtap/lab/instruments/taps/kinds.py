"""What stamps packets before and after the DuT: the seam, and the model of an experiment file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple, Protocol

from pydantic import Field, field_validator, model_validator

from tailtap.base.registry import Kind, Registry, one_of
from tailtap.base.schema import Ports, Size, Strict, Written
from tailtap.lab.generators.external import MOONSNIFF
from tailtap.lab.instruments.taps.recorder import External, ExternalTap
from tailtap.lab.topology.graph import Flow
from tailtap.records.datapath import TapsOfFlows
from tailtap.remote import Host
from tailtap.remote.local import Process

STAMP_BYTES = 16
"""What a stamp takes in its file."""
NEVER = "0 s"
"""Nothing is written before the end as long as there is room."""
NOWHERE: Mapping[str, str] = MappingProxyType({})
"""No network namespaces."""


class Stamped(NamedTuple):
    """A flow whose packets are stamped."""

    flow: Flow
    packets: int
    """For how many of them there is to be room."""
    folder: str = "."
    """Where its files go, relative to the folder of the taps."""


class Tap(Kind, Protocol):
    """One kind of taps: those before and behind the DuT, and between the nodes of a line."""

    def start(
        self,
        host: Host,
        folder: Path,
        flows: Sequence[Stamped],
        key: str = MOONSNIFF,
        namespaces: Mapping[str, str] = NOWHERE,
        snap: int | None = None,
        flush: str = NEVER,
    ) -> Process:
        """Stamp the packets of `flows` at their tap points; returns when ready.

        `host` is where their first and last tap points are. Those between are in the network
        namespaces that `namespaces` has by their nodes. Each is a file ``NAME.stamps`` by its name
        in `Flow.points`, in the flow's folder below `folder`.

        `key` says where packets carry their ids, as ``tailtap tap --key``. With `snap` each
        is ``NAME.pcap`` instead, with that many bytes of all packets. What was stamped is written
        as often as `flush` says; `NEVER` disturbs nobody meanwhile. Both are given only where
        somebody asks for that.

        Raises `MachineError` when this machine cannot do it.
        """

    def stop(self, process: Process) -> TapsOfFlows:
        """End the taps; by the flow's folder and the tap's name, what it counted.

        Raises `MachineError`.
        """


def _built_in() -> Mapping[str, Tap]:
    from tailtap.lab.instruments.taps.inline import InlineTap, PassiveTap

    return {"inline": InlineTap(), "passive": PassiveTap(), EXTERNAL: ExternalTap()}


TAPS: Registry[Tap] = Registry("tap", "tailtap.taps", Tap, _built_in)
"""Every kind of tap by its name in the experiment file."""


EXTERNAL = "external"
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
        description="Whose clock the stamps are of: the kernel's CLOCK_MONOTONIC, or that of "
        "network cards behind splitters in a testbed (docs/howto/hardware.md).",
        examples=["monotonic"],
    )
    ports: Ports | None = Field(
        default=None,
        description="The network cards at the other ends of the cables of dut.ports: before the "
        "DuT and behind it.",
        examples=[["enp2s0f0", "enp2s0f1"]],
    )
    format: Literal["stamps", "pcap"] | None = Field(
        default=None,
        description="What is written of each packet: its stamp, id and length, or in a pcap its "
        "first bytes as well. By default pcap where evaluation.match is transactions.",
        examples=["pcap"],
    )
    snap_length: Size = Field(
        default=512,
        description="How many bytes of each packet are kept in a pcap.",
        examples=["1514 B"],
    )

    external: External | None = Field(
        default=None,
        description="The program that the kind `external` runs, which needs this key.",
        examples=[{"command": "sniffer {before} {behind} --output {output}"}],
    )

    @model_validator(mode="after")
    def _external_has_a_command(self) -> Taps:
        if (self.kind == EXTERNAL) != (self.external is not None):
            raise ValueError(
                "kind: external and external: {command: …} belong together: write both or none"
            )
        if self.external is None:
            return self
        if self.format is not None:
            raise ValueError("format is of tailtap's own taps: leave it out")
        return self.model_copy(update={"clock": HARDWARE})

    @field_validator("snap_length")
    @classmethod
    def _snap_has_headers(cls, length: int) -> int:
        if not LEAST_SNAP <= length <= MOST_SNAP:
            raise ValueError(f"a pcap keeps {LEAST_SNAP} B to {MOST_SNAP} B of each packet")
        return length
