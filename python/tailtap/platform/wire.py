"""`wire`: no DuT at all. The taps stand on the two ends of one link.

It measures the measurement: whatever the taps report here is the floor under every other result.
"""

from __future__ import annotations

from collections.abc import Sequence

from tailtap.topology.lab import FROM_DUT, TO_DUT, Lab


class Wire:
    """One veth pair from tap to tap."""

    has_dut = False

    def build(self, lab: Lab, cpus: Sequence[int]) -> None:
        """Join the taps; `cpus` have no work, for there is nobody to do any."""
        lab.add_link(lab.tap, TO_DUT, lab.tap, FROM_DUT)
