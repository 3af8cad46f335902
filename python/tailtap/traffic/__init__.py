"""What is sent: one file for each generator, one row in `GENERATORS`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from tailtap.findings import Findings
from tailtap.host import Host
from tailtap.host.process import Process
from tailtap.traffic.external import ExternalGenerator
from tailtap.traffic.model import Traffic
from tailtap.traffic.own import OwnGenerator

__all__ = ["BACK_ENDS", "GENERATORS", "Generator"]


class Generator(Protocol):
    """One kind of load generator."""

    def foresee(self, traffic: Traffic, findings: Findings) -> None:
        """Find out what `start` would miss on this machine; makes nothing."""
        ...

    def start(self, host: Host, port: str, traffic: Traffic) -> Process:
        """Send `traffic` into `port`, warm-up first. Raises `MachineError`."""
        ...

    def probe(self, host: Host, port: str, traffic: Traffic) -> None:
        """Send a few warm-up packets and return. Raises `MachineError`."""
        ...

    def result(self, process: Process) -> dict[str, Any]:
        """What the ended process says it sent, the content of ``generator.json``."""
        ...


BACK_ENDS = ("af_packet", "af_xdp")
"""How `tailtap generate` hands packets to an interface."""
GENERATORS: Mapping[str, Generator] = {
    **{name: OwnGenerator(name) for name in BACK_ENDS},
    "external": ExternalGenerator(),
}
"""Every generator by its name."""
