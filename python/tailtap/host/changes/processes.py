"""Processes that others started: signals reach the one that was looked at, or none.

The number of a process is another one's once it has ended. A descriptor of it, pidfd_open(2), never
is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tailtap.base.errors import MachineError
from tailtap.base.proc import pids
from tailtap.host.changes.journal import is_ours
from tailtap.host.changes.resource import Resource, Value


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
