"""What others started: their processes, and units of systemd.

Signals reach the process that was looked at, or none: its number is another one's once it has
ended, a descriptor of it, pidfd_open(2), never is. `systemctl` stops timers and sets the CPUs that
slices may use, for this boot only (``--runtime``).
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tailtap.base.errors import MachineError
from tailtap.base.proc import pids
from tailtap.base.units import parse_cpus, ranges
from tailtap.host.changes.journal import is_ours
from tailtap.host.changes.resource import Resource, SameValue, Value
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
    return LocalHost().run(["systemctl", *words]).stdout


DEVICE = "/dev/cpu_dma_latency"
_MICROSECONDS = struct.Struct("i")
_timers: dict[int, int] = {}
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
        return self.microseconds in _timers

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
        _timers[self.microseconds] = file

    def undo(self, old: Value, applied: Value = None) -> None:
        if not old and (file := _timers.pop(self.microseconds, None)) is not None:
            os.close(file)


def send(pid: int, belongs: Callable[[int], bool], number: int = signal.SIGKILL) -> None:
    """Send a signal to a process that `belongs`; nothing happens to any other, nor to this one.

    The first process of the machine gets none either.
    """
    if pid in (1, os.getpid()):
        return
    with contextlib.suppress(ProcessLookupError), _held(pid) as held:
        if belongs(pid):
            if held is None:
                os.kill(pid, number)
            else:
                signal.pidfd_send_signal(held, number)


def end(
    belongs: Callable[[int], bool],
    seconds: float,
    where: str,
    number: int = signal.SIGKILL,
    among: Callable[[], Iterable[int]] = pids,
) -> None:
    """Send a signal to all processes that belong there, of those `among`, until there are none.

    Raises `MachineError`, which says `where` one is that does not end within so many seconds.
    """
    deadline = time.monotonic() + seconds
    while found := [pid for pid in among() if belongs(pid)]:
        if time.monotonic() > deadline:
            raise MachineError(f"process {found[0]} {where} does not end")
        for pid in found:
            send(pid, belongs, number)
        time.sleep(0.005)


@contextlib.contextmanager
def _held(pid: int) -> Iterator[int | None]:
    """A descriptor of a process; None from a kernel before Linux 5.3."""
    try:
        held = os.pidfd_open(pid)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
        yield None
        return
    try:
        yield held
    finally:
        os.close(held)


def network_of(pid: int | str) -> tuple[int, int] | None:
    """What tells the network namespace of a process from others; None when it has ended."""
    return network_at(Path(f"/proc/{pid}/ns/net"))


def network_at(path: Path) -> tuple[int, int] | None:
    """What tells the network namespace of a file from others; None when it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def is_the_machine_s(network: tuple[int, int] | None) -> bool:
    """Whether a network namespace is this process's own or that of the first process.

    Such a one is no lab's, whatever a file says.
    """
    return network is not None and network in (network_of("self"), network_of(1))


@dataclass(frozen=True)
class Folder(Resource):
    """A folder that only its owner can read; nothing but the journal says that it is tailtap's."""

    kind: ClassVar[str] = "folder"
    survives: ClassVar[bool] = True

    path: str
    """Absolute; its last part is a name that a lab gives."""

    @property
    def label(self) -> str:
        return self.path

    def read(self) -> bool:
        with contextlib.suppress(OSError):  # of names that no file can have
            return Path(self.path).is_dir()
        return False

    def apply(self) -> None:
        try:
            Path(self.path).mkdir(mode=0o700)
        except OSError as error:
            raise MachineError(f"cannot make the folder {self.path}: {error.strerror}") from error

    def undo(self, old: Value, applied: Value = None) -> None:
        if not old and is_ours(Path(self.path).name):
            shutil.rmtree(self.path, ignore_errors=True)

    def pending(self, old: Value, applied: Value = None) -> bool:
        return not old and is_ours(Path(self.path).name) and self.read()
