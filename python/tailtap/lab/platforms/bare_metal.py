"""`bare-metal`: the DuT is this machine's kernel, in a network namespace with two ports.

They are links of the lab, or network cards that the experiment names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from tailtap.base.errors import Check, Findings, MachineError
from tailtap.base.schema import NoOptions
from tailtap.host.changes.resource import Resource
from tailtap.lab.platforms.boot import (
    KernelOptions,
    check_host_kernel,
    require_boot_of_host,
    running_kernel,
)
from tailtap.lab.platforms.dut import Dut, DutSpec
from tailtap.lab.topology.graph import NodeKind
from tailtap.lab.topology.lab import Lab
from tailtap.records.machine import BUILT_IN, Traits


class BareMetal:
    """A network namespace: the same kernel, no virtualization."""

    summary = "This machine's kernel, in a network namespace with two ports."
    documentation = (
        "Nothing is virtualized: packets take the kernel's own way, on the CPUs in dut.cpus."
    )
    traits: Traits = BUILT_IN["bare-metal"]
    ports_in: NodeKind | None = "namespace"
    Options: type[BaseModel] = KernelOptions

    def diagnose(self) -> Iterator[Check]:
        kernel = running_kernel()
        yield Check("platforms", "bare-metal", "ok", f"kernel {kernel.release} ({kernel.kind})")

    def foresee(
        self,
        spec: DutSpec[Any],
        cards: Sequence[str],
        programs: Sequence[str],
        findings: Findings,
    ) -> None:
        findings.ask(check_host_kernel, spec.options.kernel)
        findings.ask(require_boot_of_host, spec)

    def machine(self, spec: DutSpec[Any]) -> Mapping[str, Any]:
        kernel = check_host_kernel(spec.options.kernel)
        return {"kernel": kernel, "boot": require_boot_of_host(spec)}

    def resources(self, name: str, spec: DutSpec[Any], cards: Sequence[str]) -> Sequence[Resource]:
        return ()

    def memory(self, spec: DutSpec[Any]) -> int:
        return 0

    def start(self, lab: Lab, specs: Sequence[DutSpec[Any]]) -> Sequence[Dut]:
        return [
            Dut(lab.host(spec.node), lab.passes(spec.node), spec.cpus, lab.facts(), node=spec.node)
            for spec in specs
        ]


class Wire:
    """One veth pair from tap to tap."""

    summary = "No DuT at all: the taps are at the two ends of one link."
    documentation = (
        "It is the floor below every other result. Keys of the DuT are ignored, but "
        "`taps: hops` and `queues` are refused. With `trace` or `counters` its run is "
        "made without, and says so."
    )
    traits: Traits = BUILT_IN["wire"]
    ports_in: NodeKind | None = None
    Options: type[BaseModel] = NoOptions

    def diagnose(self) -> Iterator[Check]:
        yield Check("platforms", "wire", "ok", "needs nothing of its own")

    def foresee(
        self,
        spec: DutSpec[Any],
        cards: Sequence[str],
        programs: Sequence[str],
        findings: Findings,
    ) -> None:
        """Nothing: there is no DuT."""

    def machine(self, spec: DutSpec[Any]) -> Mapping[str, Any]:
        return {}

    def resources(self, name: str, spec: DutSpec[Any], cards: Sequence[str]) -> Sequence[Resource]:
        return ()

    def memory(self, spec: DutSpec[Any]) -> int:
        return 0

    def start(self, lab: Lab, specs: Sequence[DutSpec[Any]]) -> Sequence[Dut]:
        raise MachineError("platform wire has no DuT: take another platform")
