"""What moves packets between the two ports of a DuT: one file a kind, one row in `FORWARDERS`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from pydantic import BaseModel

from tailtap.forwarder.fault import Fault
from tailtap.forwarder.tc_mirred import TcMirred
from tailtap.host.process import Process
from tailtap.platform.dut import Dut

__all__ = ["FORWARDERS", "Forwarder", "Running"]


class Running(Protocol):
    """A forwarder at work."""

    @property
    def process(self) -> Process | None:
        """Its process, when it has one: its early end fails the run."""
        ...

    @property
    def holds_ns(self) -> int:
        """The longest time in ns that it keeps a packet on purpose."""
        ...

    def stop(self) -> dict[str, Any]:
        """End it; what it says about itself, for ``run.json``."""
        ...

    def close(self) -> None:
        """Let go of everything; nothing happens when it has been stopped."""
        ...


class Forwarder(Protocol):
    """One kind of forwarder."""

    Options: type[BaseModel]
    """What ``dut.options`` may hold."""

    def start(self, dut: Dut, options: BaseModel) -> Running:
        """Begin to forward; returns when it is ready. Raises `MachineError`."""
        ...


FORWARDERS: Mapping[str, Forwarder] = {"tc-mirred": TcMirred(), "fault": Fault()}
"""Every forwarder by its name in the experiment file."""
