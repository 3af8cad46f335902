"""What stamps packets before and after the DuT: one file a kind, one row in `TAPS`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from tailtap.capture.inline import InlineTap
from tailtap.host import Host
from tailtap.host.process import Process
from tailtap.topology.lab import FORWARD, Way
from tailtap.traffic.external import MOONSNIFF

__all__ = ["TAPS", "Tap"]


class Tap(Protocol):
    """One kind of tap pair."""

    def start(
        self,
        host: Host,
        folder: Path,
        packets: int,
        way: Way = FORWARD,
        key: str = MOONSNIFF,
    ) -> Process:
        """Stamp packets that go one `way` on both sides into `folder`; returns when ready.

        There is room for `packets` of them.

        `key` says where packets carry their ids, as ``tailtap tap --key``.

        Raises `MachineError` when this machine cannot do it.
        """
        ...

    def stop(self, process: Process) -> dict[str, Any]:
        """End the taps; what each one counted, by its side. Raises `MachineError`."""
        ...


TAPS: Mapping[str, Tap] = {"inline": InlineTap()}
"""Every kind of tap by its name."""
