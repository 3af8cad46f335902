"""`wire`: no DuT at all. The taps stand on the two ends of one link.

It measures the measurement: whatever the taps report here is the floor under every other result.
"""

from __future__ import annotations

from collections.abc import Set

from tailtap.platform.dut import Wanted
from tailtap.topology.lab import FROM_DUT, TO_DUT, Lab


class Wire:
    """One veth pair from tap to tap."""

    has_dut = False
    uses: Set[str] = frozenset()

    def build(self, lab: Lab, wanted: Wanted) -> None:
        """Join the taps; whatever is wanted of a DuT, there is none."""
        lab.add_link(lab.tap, TO_DUT, lab.tap, FROM_DUT)
