"""What the kernel's folder /proc says of processes. What has ended meanwhile is not there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tailtap.base.files import read_text

PROC = Path("/proc")
ALLOWED = "Cpus_allowed_list"
"""The CPUs that a thread may run on, in its ``status``."""


class Stat(NamedTuple):
    """A line of a file ``stat``; proc_pid_stat(5)."""

    pid: int
    name: str
    state: str
    parent: int
    fields: Sequence[str]
    """All that is behind the name: the first of them is the third of the line."""

    @property
    def started(self) -> int:
        """When it began, in clock ticks since boot."""
        return int(self.fields[19])


def parse_stat(line: str) -> Stat | None:
    """What a line says; None for an empty one. A name may hold any letters, parentheses too."""
    head, _, tail = line.rpartition(")")
    pid, _, name = head.partition(" (")
    fields = tail.split()
    return Stat(int(pid), name, fields[0], int(fields[1]), fields) if len(fields) > 1 else None


def stat(pid: int | str, proc: Path = PROC) -> Stat | None:
    """What the kernel says of a process or a thread; None when there is none."""
    return parse_stat(read_text(proc / str(pid) / "stat") or "")


def pids(proc: Path = PROC) -> list[int]:
    """The ids of all processes, ascending."""
    return sorted(int(path.name) for path in proc.glob("[0-9]*"))


def stats(proc: Path = PROC) -> Iterator[Stat]:
    """Every process, by its id."""
    return (found for pid in pids(proc) if (found := stat(pid, proc)) is not None)


def names(proc: Path = PROC) -> dict[int, str]:
    """What each process calls itself, in 15 characters at most."""
    return {pid: name for pid in pids(proc) if (name := read_text(proc / str(pid) / "comm"))}


def status(pid: int | str = "self", proc: Path = PROC) -> Mapping[str, str]:
    """The fields of a file ``status``; proc_pid_status(5)."""
    text = read_text(proc / str(pid) / "status") or ""
    rows = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, _, value in rows}


def own_words(pid: int) -> list[str]:
    """The command line of a process of this user: any other may call itself what it likes.

    Of others, and of threads of the kernel, it is empty.
    """
    folder = PROC / str(pid)
    try:
        if folder.stat().st_uid != os.geteuid():
            return []
        line = (folder / "cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return []
    return line.rstrip("\0").split("\0") if line else []
