"""Units of systemd: timers that are stopped, and the CPUs that slices may use.

`systemctl` does and undoes it. What it sets is for this boot only (``--runtime``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tailtap.base.errors import MachineError
from tailtap.base.units import parse_cpus, ranges
from tailtap.host.changes.resource import Resource, SameValue
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
        """Stop them. Raises `MachineError` for one that still waits."""
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
