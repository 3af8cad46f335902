"""What a DuT runs on: one file for each kind, one row in `PLATFORMS`.

A platform gives a DuT with an ingress and an egress port that hang on the lab's links.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Protocol

from tailtap.findings import Findings
from tailtap.platform.bare_metal import BareMetal
from tailtap.platform.container import Container
from tailtap.platform.dut import Dut, Wanted
from tailtap.platform.vm import Vm
from tailtap.platform.wire import Wire
from tailtap.topology.lab import Cables, Lab

__all__ = ["PLATFORMS", "Dut", "Platform", "Wanted"]


class Platform(Protocol):
    """One kind of platform."""

    has_dut: bool
    """False when there is nothing between the taps, so that no forwarder is needed."""

    own_kernel: bool
    """Whether the DuT's kernel is another one than this machine's."""

    uses: Set[str]
    """Which of the fields of `Wanted` that may be left open have a meaning here."""

    def foresee(
        self, wanted: Wanted, cables: Cables | None, programs: Sequence[str], findings: Findings
    ) -> None:
        """Find out what `build` would miss on this machine, without making anything.

        The DuT's ports are at the ends of `cables`, if there are any, and its forwarder runs
        `programs`.
        """
        ...

    def build(self, lab: Lab, wanted: Wanted) -> Dut | None:
        """Wire the DuT between the taps, its receive work on the CPUs wanted. None for no DuT.

        What must end with the lab is entered by `Lab.keep`. Raises `MachineError` when this
        machine cannot do it.
        """
        ...


PLATFORMS: Mapping[str, Platform] = {
    "wire": Wire(),
    "bare-metal": BareMetal(),
    "container": Container(),
    "vm": Vm(),
}
"""Every platform by its name in the experiment file."""
