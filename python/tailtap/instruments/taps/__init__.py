"""What stamps packets before and after the DuT: one file a kind, one row in `TAPS`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from tailtap.check import Check
from tailtap.registry import Registry
from tailtap.stations import Host
from tailtap.stations.process import Process
from tailtap.topology.graph import Flow
from tailtap.traffic.external import MOONSNIFF

__all__ = ["TAPS", "Tap"]


NOWHERE: Mapping[str, str] = MappingProxyType({})
"""No network namespaces."""


class Tap(Protocol):
    """One kind of taps: those before and behind the DuT, and between the nodes of a line."""

    summary: str
    """What it is, in one sentence."""

    documentation: str
    """What its users should know, as a paragraph of Markdown."""

    def diagnose(self) -> Iterator[Check]:
        """What `tailtap doctor` says of it: find out whether it works here. Leaves nothing."""
        ...

    def start(
        self,
        host: Host,
        folder: Path,
        packets: int,
        flow: Flow,
        key: str = MOONSNIFF,
        namespaces: Mapping[str, str] = NOWHERE,
    ) -> Process:
        """Stamp the packets of `flow` at its tap points into `folder`; returns when ready.

        `host` is where its first and last tap point are, and there is room for `packets` of them.
        Those between are in the network namespaces that `namespaces` has by their nodes. Each is a
        file ``NAME.stamps`` by its name in `Flow.points`.

        `key` says where packets carry their ids, as ``tailtap tap --key``.

        Raises `MachineError` when this machine cannot do it.
        """
        ...

    def stop(self, process: Process) -> dict[str, Any]:
        """End the taps; what each one counted, by its name. Raises `MachineError`."""
        ...


def _built_in() -> Mapping[str, Tap]:
    from tailtap.instruments.taps.inline import InlineTap
    from tailtap.instruments.taps.passive import PassiveTap

    return {"inline": InlineTap(), "passive": PassiveTap()}


TAPS: Registry[Tap] = Registry("tap", "tailtap.taps", Tap, _built_in)
"""Every kind of tap by its name in the experiment file."""
