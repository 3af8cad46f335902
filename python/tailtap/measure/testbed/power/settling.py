"""Waiting until a machine has the power that it was told to have."""

from __future__ import annotations

import time
from collections.abc import Callable

from tailtap.base.errors import MachineError
from tailtap.measure.testbed.power import State

SETTLE_SECONDS = 60.0
"""Controllers of servers switch within seconds; some do so only after a graceful try."""
ASK_SECONDS = 0.5


def settle(status: Callable[[], State], wanted: State, seconds: float = SETTLE_SECONDS) -> None:
    """Return when the power is `wanted`; raises `MachineError` after `seconds`."""
    deadline = time.monotonic() + seconds
    while status() != wanted:
        if time.monotonic() > deadline:
            raise MachineError(
                f"the power is not {wanted} {seconds:g} s after it was switched {wanted}"
            )
        time.sleep(ASK_SECONDS)
