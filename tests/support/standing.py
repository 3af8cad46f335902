"""A DuT that stands in a lab, without a forwarder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tailtap.lab.platforms import PLATFORMS, Dut, DutSpec, alike, build, graph_of
from tailtap.lab.topology.lab import Lab
from tailtap.records.errors import MachineError


@contextmanager
def standing(platform: str, spec: DutSpec[Any]) -> Iterator[tuple[Lab, Dut]]:
    """The lab of a DuT on `platform`, its links up, and the DuT."""
    kind = PLATFORMS[platform]
    with Lab(graph_of(alike(kind, spec))) as lab:
        [device] = build(lab, alike(kind, spec))
        lab.wait_until_up()
        yield lab, device


class Lost(Exception):
    """The DuT that tests share has ended: none of them can do anything any more."""


@dataclass
class Shared:
    """A DuT that stands while several tests use it, one after the other."""

    platform: str
    lab: Lab
    device: Dut
    why: str | None = None
    """Why it is lost, once it is."""

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """While a test uses it.

        Raises `Lost` with the DuT's own reason when it has ended, in this test or in one before.
        """
        if self.why is not None:
            raise Lost(self.why)
        try:
            yield
        except Exception:
            try:
                self.device.host.run(["true"])
            except MachineError as error:
                self.why = str(error)
                raise Lost(self.why) from error
            raise
