"""What a run gives its forwarder besides the DuT, and what forwarders need of a machine."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tailtap.errors import MachineError
from tailtap.host import Host
from tailtap.topology.lab import Lab
from tailtap.traffic.model import Traffic

DESTINATION_MAC = "02:74:74:00:00:02"
"""Where the generator's packets are addressed to, unless told otherwise."""
NEXT_HOP_MAC = "02:74:74:00:00:03"
"""The neighbour of a forwarder of layer 3: whoever receives what it sends."""

READY_SECONDS = 2.0
"""How long the first packet may take through a forwarder in the kernel."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where programs are: containers and users other than root often lack the sbin folders."""


@dataclass(frozen=True)
class Setting:
    """The run that a forwarder works for."""

    lab: Lab
    folder: Path
    """The run folder on this machine: logs go there."""
    traffic: Traffic


@dataclass(frozen=True)
class Need:
    """A program that a forwarder runs, and how to get it."""

    program: str
    remedy: str

    def find(self, host: Host) -> str:
        """Its path on `host`. Raises `MachineError` when it is missing there."""
        ask = f'PATH="{PATH}:$PATH" command -v -- {shlex.quote(self.program)}'
        found = host.run(["sh", "-c", ask], check=False).stdout.strip()
        if not found:
            raise MachineError(
                f"the program {Path(self.program).name} is missing on {host.name}: {self.remedy}"
            )
        return found


CpuTime = Mapping[str, int]
"""CPU time in ns by `user` and `system`."""
