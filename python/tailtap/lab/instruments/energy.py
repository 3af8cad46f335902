"""What a machine tells of the energy that it takes.

Processors of Intel and AMD count it themselves, by domain (RAPL); the kernel shows the counters
below /sys/class/powercap, Documentation/power/powercap/powercap.rst. The management controller of a
server tells the power of the whole, as `ipmitool` asks for it by DCMI.
"""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from tailtap.base.errors import MachineError
from tailtap.host.facts import machine as facts
from tailtap.lab.instruments.observing import Quiet, Reading, Scope
from tailtap.records import run as records
from tailtap.records.run import Facts, Watts
from tailtap.remote.local import LocalHost

ROOT = Path("/")
ZONES = "sys/class/powercap"
_ZONE = re.compile(r"intel-rapl:\d+(:\d+)?")
"""Also AMD's; those of intel-rapl-mmio count the same energy again."""
CONTROLLERS = ("dev/ipmi0", "dev/ipmi/0", "dev/ipmidev/0")
IPMI_SECONDS = 10.0
_POWER = re.compile(r"Instantaneous power reading:\s*(\d+)\s*Watts")
_OFF = re.compile(r"Power reading state is:\s*deactivated")


@dataclass(frozen=True)
class Counter:
    """The energy of one domain since some time, in microjoules."""

    energy_uj: int
    range_uj: int
    """Beyond this it begins at 0 again."""

    def since(self, earlier: Counter) -> int:
        """The energy since `earlier`, between which the counter has wrapped once at most."""
        return (self.energy_uj - earlier.energy_uj) % (self.range_uj + 1)


def counters(root: Path = ROOT) -> dict[str, Counter]:
    """The counters of all domains that this user may read: ``package-0``, ``package-0/dram``."""
    found: dict[str, Counter] = {}
    for folder in sorted((root / ZONES).glob("intel-rapl:*")):
        name = _name(folder)
        energy, most = (facts.read(folder / file) for file in ("energy_uj", "max_energy_range_uj"))
        if name is not None and energy is not None and most is not None:
            found[name] = Counter(int(energy), int(most))
    return found


def closed(root: Path = ROOT) -> bool:
    """Whether there are counters that only root may read."""
    return any((root / ZONES).glob("intel-rapl:*/energy_uj")) and not counters(root)


def _name(folder: Path) -> str | None:
    if not _ZONE.fullmatch(folder.name):
        return None
    name = facts.read(folder / "name")
    parent = folder.name.rpartition(":")[0]
    if name is None or parent == "intel-rapl":
        return name
    above = facts.read(folder.parent / parent / "name")
    return None if above is None else f"{above}/{name}"


def platform_watts(root: Path = ROOT) -> int | None:
    """The power of the whole machine now, by its management controller; None when none tells."""
    if not any((root / path).exists() for path in CONTROLLERS):
        return None
    try:
        told = LocalHost().run(
            ["ipmitool", "dcmi", "power", "reading"], check=False, seconds=IPMI_SECONDS
        )
    except MachineError:  # it is not installed
        return None
    match = _POWER.search(told.stdout)
    if told.status or match is None or _OFF.search(told.stdout):
        return None
    return int(match[1])


MOST_WATTS = 1000
"""No domain of a processor takes more, so that no counter wraps twice between two readings."""


def count_energy(scope: Scope, root: Path = ROOT) -> Counting | None:
    """The energy of each domain of the processors, and the whole machine's power."""
    # Asking the management controller takes long and uses a processor: it comes before.
    platform = platform_watts(root)
    before = counters(root)
    return Counting(root, before, platform) if before or platform is not None else None


class Counting(Quiet):
    """Counters from a moment on. A thread reads those in between that would wrap unseen."""

    def __init__(self, root: Path, before: dict[str, Counter], platform: int | None) -> None:
        self._root, self._platform = root, platform
        self._last, self._spent = before, dict.fromkeys(before, 0)
        self._began = time.monotonic_ns()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        if before:
            seconds = min(one.range_uj for one in before.values()) / 1e6 / MOST_WATTS
            self._thread = threading.Thread(target=self._follow, args=(seconds,), daemon=True)
            self._thread.start()

    def _follow(self, seconds: float) -> None:
        while not self._over.wait(seconds):
            self._add()

    def _add(self) -> None:
        now = counters(self._root)
        self._spent = {name: self._spent[name] + now[name].since(self._last[name])
                       for name in self._spent if name in now}  # fmt: skip
        self._last = now

    def stop(self) -> Reading:
        self.close()
        self._add()
        elapsed = time.monotonic_ns() - self._began
        watts = None
        if self._platform is not None:
            watts = Watts(before=self._platform, after=platform_watts(self._root))
        spent = records.Energy(elapsed_ns=elapsed, energy_uj=self._spent, platform_watts=watts)
        return Reading(Facts(energy=spent))

    def close(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
