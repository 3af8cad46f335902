"""`wire`: no DuT at all. The taps stand on the two ends of one link.

It measures the measurement: whatever the taps report here is the floor under every other result.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from tailtap.findings import Findings
from tailtap.platform.dut import Wanted
from tailtap.topology.lab import FROM_DUT, TO_DUT, Cables, Lab


class Wire:
    """One veth pair from tap to tap."""

    has_dut = False
    own_kernel = False
    uses: Set[str] = frozenset()

    def foresee(
        self, wanted: Wanted, cables: Cables | None, programs: Sequence[str], findings: Findings
    ) -> None:
        """Nothing: there is no DuT."""

    def build(self, lab: Lab, wanted: Wanted) -> None:
        """Join the taps; whatever is wanted of a DuT, there is none."""
        lab.add_link(lab.tap, TO_DUT, lab.tap, FROM_DUT)
