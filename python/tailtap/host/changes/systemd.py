"""Units of systemd: timers that are stopped, and the CPUs that slices may use.

`systemctl` does and undoes it. What it sets is for this boot only (``--runtime``).
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tailtap.base.errors import MachineError
from tailtap.base.units import parse_cpus, ranges
from tailtap.host.changes.resource import Resource, SameValue, Value
from tailtap.remote import CommandFailed
from tailtap.remote.local import LocalHost

RUNNING = "/run/systemd/system"
"""A folder that is there as long as systemd is the first process; sd_booted(3)."""
STATE, CPUS = "ActiveState", "AllowedCPUs"


def properties(units: Sequence[str], name: str) -> dict[str, str]:
    """A property of each unit that systemd knows. Raises `MachineError` when it does not answer."""
    shown = _systemctl("show", "--property", f"Id,LoadState,{name}", *units)
    found: dict[str, str] = {}
    for block in shown.split("\n\n"):
        row = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if row.get("LoadState") == "loaded":
            found[row["Id"]] = row.get(name, "")
    return found


@dataclass(frozen=True)
class StoppedTimers(Resource):
    """Timers that start nothing for now; what they have started already goes on."""

    kind: ClassVar[str] = "timers"

    units: Sequence[str]

    @property
    def label(self) -> str:
        return f"systemctl stop {' '.join(self.units)}"

    @property
    def claims(self) -> Sequence[str]:
        return [f"unit {unit}" for unit in self.units]

    def read(self) -> dict[str, str]:
        return properties(self.units, STATE)

    def plan(self) -> dict[str, str]:
        return dict.fromkeys(self.units, "inactive")

    def apply(self) -> None:
        _systemctl("stop", *self.units)
        if waiting := [unit for unit, state in self.read().items() if state == "active"]:
            raise MachineError(f"{', '.join(waiting)} was stopped, and is active all the same")

    def undo(self, old: Mapping[str, str], applied: None = None) -> None:
        if stopped := self._stopped(old):
            _systemctl("start", *stopped)

    def pending(self, old: Mapping[str, str], applied: None = None) -> bool:
        return bool(self._stopped(old))

    def _stopped(self, old: Mapping[str, str]) -> list[str]:
        now = self.read()
        return [unit for unit in self.units
                if old.get(unit) == "active" and now.get(unit, "active") != "active"]  # fmt: skip


@dataclass(frozen=True)
class SliceCpus(SameValue):
    """The CPUs that everything in some slices and scopes may use."""

    kind: ClassVar[str] = "slice CPUs"

    units: Sequence[str]
    cpus: str
    """As the kernel writes them."""

    @property
    def label(self) -> str:
        return f"{CPUS}={self.cpus} of {', '.join(self.units)}"

    @property
    def claims(self) -> Sequence[str]:
        return [f"{CPUS} of {unit}" for unit in self.units]

    def read(self) -> dict[str, str]:
        found = properties(self.units, CPUS)
        # systemd writes spaces where the kernel writes commas.
        return {unit: ranges(parse_cpus(text.replace(" ", ","))) for unit, text in found.items()}

    @property
    def wanted(self) -> str:
        return self.cpus

    def told(self, value: str) -> str:
        return f"CPUs {value or 'all'}"

    def set(self, place: str, value: str) -> None:
        _systemctl("set-property", "--runtime", place, f"{CPUS}={value}")


def _systemctl(*words: str) -> str:
    try:
        return LocalHost().run(["systemctl", *words]).stdout
    except CommandFailed as error:
        raise MachineError(f"`systemctl {' '.join(words)}` failed: {error.reason}") from error


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

    def read(self) -> bool:
        return self.microseconds in _held

    def apply(self) -> None:
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
