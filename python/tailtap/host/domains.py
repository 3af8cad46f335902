"""Virtual machines of tailtap that run now: their processes and their folders."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tailtap.errors import MachineError
from tailtap.host.journal import STATE

NAME = re.compile(r"tt-[0-9a-f]{6}-dut")
FOLDERS = STATE / "vm"
"""Where the folders of all machines are."""
END_SECONDS = 10.0
"""How long libvirt may take to end a machine before it is killed."""


class Domains:
    """Virtual machines: QEMU, libvirt's program that runs it, and the folder of both."""

    def existing(self, entered: Sequence[str]) -> list[str]:
        """Those that have a folder, and those that a journal knows and that have a process.

        Processes alone do not tell: they may be those of a tailtap that we cannot see.
        """
        running = {belongs_to(words) for _, words in _processes()}
        folders = {path.name for path in FOLDERS.glob("*") if NAME.fullmatch(path.name)}
        return sorted(folders | {name for name in entered if name in running})

    def remove(self, name: str) -> None:
        """End its processes, libvirt's first as that ends QEMU, and remove its folder."""
        number = signal.SIGTERM
        deadline = time.monotonic() + END_SECONDS
        while pids := [pid for pid, words in _processes() if belongs_to(words) == name]:
            if time.monotonic() > deadline:
                if number == signal.SIGKILL:
                    raise MachineError(f"process {pids[0]} of the machine {name} does not end")
                number, deadline = signal.SIGKILL, time.monotonic() + END_SECONDS
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            time.sleep(0.05)
        shutil.rmtree(FOLDERS / name, ignore_errors=True)


def threads_of(name: str) -> dict[str, int]:
    """The ids of the threads of the machine `name`, by what QEMU calls them."""
    found: dict[str, int] = {}
    for pid, words in _processes():
        if f"guest={name}," in " ".join(words):
            with contextlib.suppress(OSError):
                for task in Path(f"/proc/{pid}/task").iterdir():
                    found[task.joinpath("comm").read_text().strip()] = int(task.name)
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


def _processes() -> Iterator[tuple[int, list[str]]]:
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                line = Path(entry.path, "cmdline").read_text(encoding="utf-8", errors="replace")
                if line:  # kernel threads have none
                    yield int(entry.name), line.rstrip("\0").split("\0")
