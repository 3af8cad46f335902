"""How fast idle processors must wake up, as long as this process wants it.

The kernel takes such a wish from whoever holds /dev/cpu_dma_latency open, and forgets it when the
file is closed: Documentation/power/pm_qos_interface.rst. Nothing has to be undone after a crash.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tailtap.base.errors import MachineError
from tailtap.host.changes.resource import Resource, Value

DEVICE = "/dev/cpu_dma_latency"
_MICROSECONDS = struct.Struct("i")
_held: dict[int, int] = {}
"""The open file by the wish that was written to it."""


def wakeup_us(path: Path = Path(DEVICE)) -> int:
    """The shortest time that anybody wants, in microseconds. Raises `OSError`."""
    with path.open("rb", buffering=0) as file:
        (found,) = _MICROSECONDS.unpack(file.read(_MICROSECONDS.size))
    return int(found)


@dataclass(frozen=True)
class WakeUp(Resource):
    """A wish that this process holds: processors wake up within so many microseconds."""

    kind: ClassVar[str] = "wake-up time"

    microseconds: int

    @property
    def label(self) -> str:
        return f"{DEVICE} held at {self.microseconds} us"

    @property
    def claims(self) -> Sequence[str]:
        return ()

    def read(self) -> bool:
        return self.microseconds in _held

    def apply(self) -> None:
        """Hold it. Raises `MachineError`."""
        file = -1
        try:
            file = os.open(DEVICE, os.O_RDWR)
            os.write(file, _MICROSECONDS.pack(self.microseconds))
            found = wakeup_us()
        except OSError as error:
            with contextlib.suppress(OSError):
                os.close(file)
            raise MachineError(f"{DEVICE} cannot be held: {error.strerror}") from error
        if found > self.microseconds:
            os.close(file)
            raise MachineError(
                f"{DEVICE} was told {self.microseconds} us, but the kernel says {found}"
            )
        _held[self.microseconds] = file

    def undo(self, old: Value, applied: Value = None) -> None:
        if not old and (file := _held.pop(self.microseconds, None)) is not None:
            os.close(file)
