"""What a run gives its forwarder besides the DuT, and what forwarders need from a machine."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tailtap.errors import MachineError
from tailtap.platform.dut import Dut
from tailtap.stations import Host
from tailtap.stations.local import SYSTEM_PATH
from tailtap.topology.lab import Lab
from tailtap.traffic.model import Traffic

DESTINATION_MAC = "02:74:74:00:00:02"
"""The default destination of the generator's packets."""
NEXT_HOP_MAC = "02:74:74:00:00:03"
"""The next hop of a forwarder of layer 3."""

READY_SECONDS = 2.0
"""Seconds until the first packet must have come through a forwarder in the kernel."""


@dataclass(frozen=True)
class Asked:
    """What a run asks its forwarder for; known before anything is started."""

    traffic: Traffic
    cpus: int
    """How many CPUs are the DuT's."""
    cards: Sequence[str]
    """The network cards that are its ports; empty for links of the lab."""
    own_kernel: bool
    """Whether it runs in a virtual machine."""


@dataclass(frozen=True)
class Setting:
    """The run that a forwarder works for."""

    lab: Lab
    folder: Path
    """The run folder on this machine: logs go there."""
    traffic: Traffic
    in_line: bool = False
    """Whether other nodes have forwarders as well."""

    def part(self, dut: Dut) -> str:
        """What comes behind the names of the things of one node."""
        return f"-{dut.node}" if self.in_line else ""

    def asked(self, dut: Dut) -> Asked:
        """What the run asks a forwarder on `dut` for."""
        cards = list(self.lab.graph.cards_of(dut.node).values())
        return Asked(self.traffic, len(dut.cpus), cards, dut.host.own_kernel)


@dataclass(frozen=True)
class Need:
    """A program that a forwarder runs, and how to get it."""

    program: str
    remedy: str

    def find(self, host: Host) -> str:
        """Its path on `host`. Raises `MachineError` when it is missing there."""
        ask = f'PATH="{SYSTEM_PATH}:$PATH" command -v -- {shlex.quote(self.program)}'
        found = host.run(["sh", "-c", ask], check=False).stdout.strip()
        if not found:
            raise MachineError(
                f"the program {Path(self.program).name} is missing on {host.name}: {self.remedy}"
            )
        return found


CpuTime = Mapping[str, int]
"""CPU time in ns by `user` and `system`."""
