"""What stamps packets before and after the DuT: one file a kind, one row in `TAPS`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from tailtap.capture.inline import InlineTap
from tailtap.host import Host
from tailtap.host.process import Process

__all__ = ["TAPS", "Tap"]


class Tap(Protocol):
    """One kind of tap pair."""

    def start(self, host: Host, folder: Path, packets: int) -> Process:
        """Stamp on both sides into `folder`, with room for `packets`; returns when ready.

        Raises `MachineError` when this machine cannot do it.
        """
        ...

    def stop(self, process: Process) -> dict[str, Any]:
        """End the taps; what each one counted, by its side. Raises `MachineError`."""
        ...


TAPS: Mapping[str, Tap] = {"inline": InlineTap()}
"""Every kind of tap by its name."""
