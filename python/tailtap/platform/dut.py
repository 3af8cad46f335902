"""The device under test, as a platform hands it to a forwarder."""

from __future__ import annotations

from dataclasses import dataclass

from tailtap.host import Host


@dataclass(frozen=True)
class Dut:
    """A host with two ports, and the CPUs that its work belongs on."""

    host: Host
    ingress: str
    egress: str
    cpus: tuple[int, ...]
