"""Forwarders move packets between the two ports of a DuT: a file and a row in `FORWARDERS` each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pydantic import BaseModel

from tailtap.base.errors import Findings
from tailtap.base.registry import Kind, Registry
from tailtap.lab.forwarders.setting import Asked, CpuTime, Need, Serves, Setting
from tailtap.lab.platforms.dut import Dut
from tailtap.lab.served import Served
from tailtap.records.record import Notice
from tailtap.remote.local import Process

__all__ = [
    "FORWARDERS",
    "Asked",
    "Forwarder",
    "Need",
    "Running",
    "Served",
    "Serves",
    "Setting",
]


class Running(Protocol):
    """A forwarder that runs."""

    @property
    def process(self) -> Process | None:
        """Its process, if it has one. The run fails when the process ends early."""

    @property
    def holds_ns(self) -> int:
        """The longest time in ns that it keeps a packet on purpose."""

    @property
    def ready_seconds(self) -> float:
        """How many seconds may pass until the first packet comes through."""

    @property
    def warnings(self) -> Sequence[Notice]:
        """Warnings about every measurement with it."""

    def served(self) -> Served:
        """By what its packets are served now."""

    def cpu_time(self) -> CpuTime | None:
        """The CPU time of its process so far; None without a process on this machine."""

    def failure(self) -> str:
        """Why it ended early or lets nothing through, as one line."""

    def stop(self) -> dict[str, Any]:
        """End it. Returns its facts for ``run.json``."""

    def close(self) -> None:
        """Release everything. Does nothing after `stop`."""


class Forwarder(Kind, Protocol):
    """One kind of forwarder."""

    in_kernel: bool
    """Whether the kernel forwards; else a program does."""

    routes: bool
    """Whether it takes one from each packet's time to live, as routers do."""

    serves: Serves
    """Which nodes of a graph it can serve."""

    shares_cpus: bool
    """Whether several of it can work on the same CPUs, as the nodes of a line may."""

    Options: type[BaseModel]
    """What ``dut.options`` may hold."""

    needs: Sequence[Need]
    """The programs that it runs."""

    def foresee(self, options: Any, asked: Asked, findings: Findings) -> None:
        """Find out what `start` would miss on this machine besides `needs`; changes nothing."""

    def start(self, dut: Dut, options: Any, setting: Setting) -> Running:
        """Begin to forward. Raises `MachineError`, or `InputError` for what the options name."""


def _built_in() -> Mapping[str, Forwarder]:
    from tailtap.lab.forwarders.commands import ExternalForwarder, Server
    from tailtap.lab.forwarders.dpdk_examples import DpdkL2fwd, DpdkL3fwd, Testpmd
    from tailtap.lab.forwarders.in_kernel import Bridge, TcMirred
    from tailtap.lab.forwarders.ovs import Ovs, OvsDpdk
    from tailtap.lab.forwarders.own import Fault, Xdp
    from tailtap.lab.forwarders.routing import KernelRoute, Nat, Nftables
    from tailtap.lab.forwarders.suricata import Suricata

    return {
        "tc-mirred": TcMirred(),
        "bridge": Bridge(),
        "kernel-route": KernelRoute(),
        "nat": Nat(),
        "nftables": Nftables(),
        "xdp": Xdp(),
        "testpmd": Testpmd(),
        "dpdk-l2fwd": DpdkL2fwd(),
        "dpdk-l3fwd": DpdkL3fwd(),
        "ovs": Ovs(),
        "ovs-dpdk": OvsDpdk(),
        "suricata": Suricata(),
        "external": ExternalForwarder(),
        "server": Server(),
        "fault": Fault(),
    }


FORWARDERS: Registry[Forwarder] = Registry("forwarder", "tailtap.forwarders", Forwarder, _built_in)
"""Every forwarder by its name in the experiment file."""
