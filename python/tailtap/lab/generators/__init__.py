"""What is sent: one file for each generator, one row in `GENERATORS`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from pydantic import BaseModel

from tailtap.base.errors import Findings
from tailtap.base.registry import Kind, Registry
from tailtap.lab.generators.flows import Sending
from tailtap.lab.generators.model import Traffic
from tailtap.records.datapath import GeneratorRecord
from tailtap.remote import Host
from tailtap.remote.local import Process

__all__ = ["GENERATORS", "Generator", "Sending"]


class Generator(Kind, Protocol):
    """One kind of load generator."""

    Options: type[BaseModel]
    """What ``traffic.options`` may hold."""

    def foresee(self, traffic: Traffic, findings: Findings) -> None:
        """Find out what `start` would miss on this machine; changes nothing."""

    def start(self, host: Host, sendings: Sequence[Sending]) -> Sequence[Process]:
        """Send each traffic into its port, its warm-up first; all of them have the same CPUs.

        One process sends all of them, or one for each. Raises `MachineError`.
        """

    def probe(self, host: Host, sendings: Sequence[Sending]) -> None:
        """Send a few warm-up packets of each and return. Raises `MachineError`."""

    def result(self, processes: Sequence[Process]) -> Sequence[GeneratorRecord]:
        """What the ended processes report of each sending. A class of their own may add fields.

        Raises `MachineError` when there is none.
        """


def _built_in() -> Mapping[str, Generator]:
    from tailtap.lab.generators.external import ExternalGenerator
    from tailtap.lab.generators.own import BACK_ENDS, OwnGenerator

    return {**{name: OwnGenerator(name) for name in BACK_ENDS}, "external": ExternalGenerator()}


GENERATORS: Registry[Generator] = Registry("generator", "tailtap.generators", Generator, _built_in)
"""Every generator by its name."""
