"""What stamps packets before and after the DuT: one file a kind, one row in `TAPS`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Protocol

from tailtap.base.check import Check
from tailtap.base.registry import Registry
from tailtap.lab.generators.external import MOONSNIFF
from tailtap.lab.topology.graph import Flow
from tailtap.records.taps import TapsOfFlows
from tailtap.remote import Host
from tailtap.remote.process import Process

__all__ = ["STAMP_BYTES", "TAPS", "Stamped", "Tap"]


STAMP_BYTES = 16
"""What a stamp takes in its file."""
NEVER = "0 s"
"""Nothing is written before the end as long as there is room."""
NOWHERE: Mapping[str, str] = MappingProxyType({})
"""No network namespaces."""


class Stamped(NamedTuple):
    """A flow whose packets are stamped."""

    flow: Flow
    packets: int
    """For how many of them there is to be room."""
    folder: str = "."
    """Where its files go, relative to the folder of the taps."""


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
        flows: Sequence[Stamped],
        key: str = MOONSNIFF,
        namespaces: Mapping[str, str] = NOWHERE,
        snap: int | None = None,
        flush: str = NEVER,
    ) -> Process:
        """Stamp the packets of `flows` at their tap points; returns when ready.

        `host` is where their first and last tap points are. Those between are in the network
        namespaces that `namespaces` has by their nodes. Each is a file ``NAME.stamps`` by its name
        in `Flow.points`, in the flow's folder below `folder`.

        `key` says where packets carry their ids, as ``tailtap tap --key``. With `snap` each
        is ``NAME.pcap`` instead, with that many bytes of all packets. What was stamped is written
        as often as `flush` says; `NEVER` disturbs nobody meanwhile. Both are given only where
        somebody asks for that.

        Raises `MachineError` when this machine cannot do it.
        """
        ...

    def stop(self, process: Process) -> TapsOfFlows:
        """End the taps; by the flow's folder and the tap's name, what it counted.

        Raises `MachineError`.
        """
        ...


def _built_in() -> Mapping[str, Tap]:
    from tailtap.lab.instruments.taps.inline import InlineTap
    from tailtap.lab.instruments.taps.passive import PassiveTap

    return {"inline": InlineTap(), "passive": PassiveTap()}


TAPS: Registry[Tap] = Registry("tap", "tailtap.taps", Tap, _built_in)
"""Every kind of tap by its name in the experiment file."""
