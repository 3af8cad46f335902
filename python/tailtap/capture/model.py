"""The `tap` part of an experiment file."""

from __future__ import annotations

from typing import Literal

from tailtap.schema import Ports, Strict


class Taps(Strict):
    """What stamps packets before and after the DuT."""

    clock: Literal["monotonic", "hardware"] = "monotonic"
    ports: Ports | None = None
    """The cards that cables join with `dut.ports`."""
