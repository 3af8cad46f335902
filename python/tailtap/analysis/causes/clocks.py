"""Which late packets a clock is known well enough for, where stamps and traces are of two."""

from __future__ import annotations

from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from tailtap.analysis.clocks.alignment import Times
from tailtap.analysis.evaluation.values import Column

Chosen: TypeAlias = npt.NDArray[np.bool_]
WIDE = 0.2
"""A packet is joined with another clock where what is open of that is at most this part of its
excess."""


class Shown(Protocol):
    """A clock by that of the stamps."""

    def off_ns(self, times: Times) -> Times:
        """How far it may be off at times of the stamps, in ns."""
        ...


def too_coarse(clock: Shown, egress_ns: Column, excess_ns: Column) -> Chosen:
    """Which packets it is not known well enough for, by when they left and how late they were."""
    wide: Chosen = 2 * clock.off_ns(egress_ns) > WIDE * excess_ns
    return wide
