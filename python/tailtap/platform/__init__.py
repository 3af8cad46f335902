"""What a DuT runs on: one file for each kind, one row in `PLATFORMS`.

A platform gives a DuT with an ingress and an egress port that hang on the lab's links.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tailtap.platform.bare_metal import BareMetal
from tailtap.platform.dut import Dut
from tailtap.platform.wire import Wire
from tailtap.topology.lab import Lab

__all__ = ["PLATFORMS", "Dut", "Platform"]


class Platform(Protocol):
    """One kind of platform."""

    has_dut: bool
    """False when there is nothing between the taps, so that no forwarder is needed."""

    def build(self, lab: Lab, cpus: Sequence[int]) -> Dut | None:
        """Wire the DuT between the taps, its receive work on `cpus`. None for no DuT.

        Raises `MachineError` when this machine cannot do it.
        """
        ...


PLATFORMS: Mapping[str, Platform] = {"wire": Wire(), "bare-metal": BareMetal()}
"""Every platform by its name in the experiment file."""
