"""What moves packets between the two ports of a DuT: one file a kind, one row in `FORWARDERS`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pydantic import BaseModel

from tailtap.findings import Findings
from tailtap.forwarder.dpdk_l2fwd import DpdkL2fwd
from tailtap.forwarder.dpdk_l3fwd import DpdkL3fwd
from tailtap.forwarder.external import ExternalForwarder
from tailtap.forwarder.fault import Fault
from tailtap.forwarder.kernel_route import KernelRoute
from tailtap.forwarder.setting import Asked, CpuTime, Need, Setting
from tailtap.forwarder.suricata import Suricata
from tailtap.forwarder.tc_mirred import TcMirred
from tailtap.forwarder.testpmd import Testpmd
from tailtap.forwarder.xdp import Xdp
from tailtap.host.process import Process
from tailtap.platform.dut import Dut

__all__ = ["FORWARDERS", "Asked", "Forwarder", "Need", "Running", "Setting"]


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

    @property
    def ready_seconds(self) -> float:
        """How long the first packet may take through it."""
        ...

    def cpu_time(self) -> CpuTime | None:
        """The CPU time of its process so far; None when it has none that could be asked."""
        ...

    def failure(self) -> str:
        """Why it ended early or lets nothing through, as one line."""
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

    needs: Sequence[Need]
    """The programs that it runs."""

    def foresee(self, options: BaseModel, asked: Asked, findings: Findings) -> None:
        """Find out what `start` would miss on this machine, but for `needs`; makes nothing."""
        ...

    def start(self, dut: Dut, options: BaseModel, setting: Setting) -> Running:
        """Begin to forward. Raises `MachineError`, or `InputError` for what the options name."""
        ...


FORWARDERS: Mapping[str, Forwarder] = {
    "tc-mirred": TcMirred(),
    "kernel-route": KernelRoute(),
    "xdp": Xdp(),
    "testpmd": Testpmd(),
    "dpdk-l2fwd": DpdkL2fwd(),
    "dpdk-l3fwd": DpdkL3fwd(),
    "suricata": Suricata(),
    "external": ExternalForwarder(),
    "fault": Fault(),
}
"""Every forwarder by its name in the experiment file."""
