"""`bare-metal`: the DuT is this machine's kernel, in a network namespace with two ports.

They are links of the lab, or network cards that the experiment names.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from tailtap.findings import Findings
from tailtap.platform import boot
from tailtap.platform.dut import Dut, Wanted
from tailtap.platform.kernel import check_host_kernel
from tailtap.topology.lab import DUT_EGRESS, DUT_INGRESS, Cables, Lab


class BareMetal:
    """A network namespace: the same kernel, no virtualization."""

    has_dut = True
    own_kernel = False
    uses: Set[str] = frozenset({"kernel", "boot", "ports"})

    def foresee(
        self, wanted: Wanted, cables: Cables | None, programs: Sequence[str], findings: Findings
    ) -> None:
        """Find out whether this machine was booted so."""
        findings.ask(check_host_kernel, wanted.kernel)
        findings.ask(boot.require_of_host, wanted.boot, wanted.boot_without, wanted.cpus)

    def build(self, lab: Lab, wanted: Wanted) -> Dut:
        """Make the namespace and its ports; receive work goes to the CPUs wanted."""
        kernel = check_host_kernel(wanted.kernel)
        booted = boot.require_of_host(wanted.boot, wanted.boot_without, wanted.cpus)
        host = lab.add_namespace("dut")
        lab.connect(host, wanted.cpus)
        facts = {"kernel": kernel, "boot": booted, **lab.facts()}
        return Dut(host, DUT_INGRESS, DUT_EGRESS, wanted.cpus, wanted.both_ways, facts)
