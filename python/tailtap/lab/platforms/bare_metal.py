"""`bare-metal`: the DuT is this machine's kernel, in a network namespace with two ports.

They are links of the lab, or network cards that the experiment names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from tailtap.base.check import Check, Findings
from tailtap.host.changes.resource import Resource
from tailtap.lab.platforms.dut import Dut, DutSpec
from tailtap.lab.platforms.kernel import check_host_kernel, running_kernel
from tailtap.lab.platforms.options import KernelOptions, require_boot_of_host
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
        """It needs nothing but the lab; the kernel is told."""
        kernel = running_kernel()
        yield Check("platforms", "bare-metal", "ok", f"kernel {kernel.release} ({kernel.kind})")

    def foresee(
        self,
        spec: DutSpec[KernelOptions],
        cards: Sequence[str],
        programs: Sequence[str],
        findings: Findings,
    ) -> None:
        """Find out whether this machine was booted so."""
        findings.ask(check_host_kernel, spec.options.kernel)
        findings.ask(require_boot_of_host, spec)

    def machine(self, spec: DutSpec[KernelOptions]) -> Mapping[str, Any]:
        """It was booted as the experiment says."""
        kernel = check_host_kernel(spec.options.kernel)
        return {"kernel": kernel, "boot": require_boot_of_host(spec)}

    def resources(
        self, name: str, spec: DutSpec[KernelOptions], cards: Sequence[str]
    ) -> Sequence[Resource]:
        """Nothing but this machine."""
        return ()

    def memory(self, spec: DutSpec[KernelOptions]) -> int:
        """What its forwarder needs."""
        return 0

    def start(self, lab: Lab, specs: Sequence[DutSpec[KernelOptions]]) -> Sequence[Dut]:
        """Nothing has to be started."""
        return [
            Dut(lab.host(spec.node), lab.passes(spec.node), spec.cpus, lab.facts(), node=spec.node)
            for spec in specs
        ]
