"""`bare-metal`: the DuT is this machine's kernel, in a network namespace with two ports."""

from __future__ import annotations

from collections.abc import Set

from tailtap.platform.dut import Dut, Wanted
from tailtap.platform.kernel import check_host_kernel
from tailtap.topology.lab import DUT_EGRESS, DUT_INGRESS, FROM_DUT, TO_DUT, Lab


class BareMetal:
    """A network namespace: the same kernel, no virtualization."""

    has_dut = True
    uses: Set[str] = frozenset({"kernel"})

    def build(self, lab: Lab, wanted: Wanted) -> Dut:
        """Make the namespace and its ports; receive work goes to the CPUs wanted."""
        kernel = check_host_kernel(wanted.kernel, wanted.cpus)
        host = lab.add_namespace("dut")
        lab.add_link(lab.tap, TO_DUT, host, DUT_INGRESS)
        lab.add_link(host, DUT_EGRESS, lab.tap, FROM_DUT)
        for port in (DUT_INGRESS, DUT_EGRESS) if wanted.both_ways else (DUT_INGRESS,):
            lab.steer(host, port, wanted.cpus)
        return Dut(host, DUT_INGRESS, DUT_EGRESS, wanted.cpus, wanted.both_ways, {"kernel": kernel})
