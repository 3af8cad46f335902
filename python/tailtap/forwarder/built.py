"""Programs that ``make forwarders`` builds and puts beside ``tailtap``."""

from __future__ import annotations

import sys
from pathlib import Path

from tailtap.forwarder.setting import Need


def built(name: str) -> Need:
    """A program beside this interpreter or, when it is not there, on the path."""
    beside = Path(sys.executable).with_name(name)
    program = str(beside) if beside.exists() else name
    return Need(program, "build it with `make forwarders`, which says what it needs")
