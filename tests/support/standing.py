"""A DuT that stands in a lab, without a forwarder."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from tailtap.base.errors import MachineError
from tailtap.lab.platforms import PLATFORMS, Dut, DutSpec, alike, build, graph_of
from tailtap.lab.topology.lab import Lab


@contextmanager
def standing(platform: str, spec: DutSpec[Any]) -> Iterator[tuple[Lab, Dut]]:
    """The lab of a DuT on `platform`, its links up, and the DuT."""
    kind = PLATFORMS[platform]
    with Lab(graph_of(alike(kind, spec))) as lab:
        [device] = build(lab, alike(kind, spec))
        lab.wait_until_up()
        yield lab, device


class Lost(Exception):
    """The DuT that tests share has ended again: none of them can do anything any more."""


class Shared:
    """A DuT that stands while several tests use it, one after the other.

    An emulator can crash, and has: a DuT that ended is started anew once, with a warning that says
    how it ended, so that the test can be repeated.
    """

    def __init__(self, platform: str, spec: DutSpec[Any]) -> None:
        """A DuT of `spec` on `platform`; it is there while the context lasts."""
        self.platform, self._spec = platform, spec
        self._stack = ExitStack()
        self._ended: list[str] = []

    def __enter__(self) -> Shared:
        """Start it."""
        self.lab, self.device = self._stack.enter_context(standing(self.platform, self._spec))
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self._stack.close()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """While a test uses it. Raises `Lost` when it has ended a second time, here or before."""
        if len(self._ended) > 1:
            raise Lost(self._ended[-1])
        try:
            yield
        except Exception:
            try:
                self.device.host.run(["true"])
            except MachineError as error:
                self._lose(str(error))
            raise

    def _lose(self, why: str) -> None:
        self._ended.append(why)
        if len(self._ended) > 1:
            raise Lost(why)
        warnings.warn(f"the DuT was started anew: {why}", stacklevel=1)
        self._stack.close()
        self.__enter__()
