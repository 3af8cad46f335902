"""Virtual machines of tailtap that run now: their processes and their folders."""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tailtap.base import proc
from tailtap.base.errors import MachineError
from tailtap.base.files import make_private
from tailtap.host.changes import systemd
from tailtap.host.changes.journal import STATE
from tailtap.host.changes.resource import Resource, Value

NAME = re.compile(r"tt-[0-9a-f]{6}-dut")
FOLDERS = STATE / "vm"
END_SECONDS = 10.0
"""How long libvirt may take to end a machine before it is killed."""


@dataclass(frozen=True)
class DomainFolder(Resource):
    """The folder of a virtual machine; the processes that use it go with it."""

    kind: ClassVar[str] = "domain"

    name: str

    @property
    def label(self) -> str:
        return self.name

    def read(self) -> bool:
        return (FOLDERS / self.name).exists()

    def apply(self) -> None:
        make_private(STATE)
        (FOLDERS / self.name).mkdir(mode=0o700, parents=True)

    def undo(self, old: Value, applied: Value = None) -> None:
        if not old:
            remove(self.name)

    def pending(self, old: Value, applied: Value = None) -> bool:
        return self.read() or is_running(self.name)

    @classmethod
    def existing(cls) -> list[DomainFolder]:
        """Those that have a folder.

        Processes alone do not tell: they may be those of a tailtap that we cannot see.
        """
        return [cls(path.name) for path in sorted(FOLDERS.glob("*")) if NAME.fullmatch(path.name)]


def is_running(name: str) -> bool:
    """Whether there is a process of the machine `name`."""
    return any(_machine_of(pid) == name for pid in proc.pids())


def remove(name: str) -> None:
    """End the processes of the machine `name`, libvirt's first as that ends QEMU, and its folder.

    Raises `MachineError` when a process does not end.
    """
    where = f"of the machine {name}"
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            systemd.end(lambda pid: _machine_of(pid) == name, END_SECONDS, where, number)
        except MachineError:
            if number == signal.SIGKILL:
                raise
    shutil.rmtree(FOLDERS / name, ignore_errors=True)


def threads_of(name: str) -> dict[str, int]:
    """The ids of the threads of the machine `name`, by what QEMU calls them."""
    found: dict[str, int] = {}
    for pid in proc.pids():
        if f"guest={name}," in " ".join(proc.own_words(pid)):
            tasks = proc.names(Path(f"/proc/{pid}/task"))
            found |= {title: number for number, title in tasks.items()}
    return found


def belongs_to(words: Sequence[str]) -> str | None:
    """The machine that a command line belongs to."""
    program = Path(words[0]).name
    if program.startswith("qemu-system-"):
        place = words.index("-name") + 1 if "-name" in words else 0
        found = re.match(rf"guest=({NAME.pattern})(,|$)", words[place])
        return found[1] if found else None
    if program == "virt-qemu-run":
        for word in words:
            if Path(word).parent == FOLDERS and NAME.fullmatch(Path(word).name):
                return Path(word).name
    return None


def _machine_of(pid: int) -> str | None:
    words = proc.own_words(pid)
    return belongs_to(words) if words else None
