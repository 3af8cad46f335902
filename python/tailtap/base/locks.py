"""Waiting: for a lock of a file, flock(2), where it is said for whom, and for anything else."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import stat
import time
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import TypeVar

log = logging.getLogger("tailtap")
PATIENCE_SECONDS = 1.0
"""A wait that is shorter is not worth a word."""
LOOK_SECONDS = 0.05
LOCKS = Path("/proc/locks")
MOST_CHARACTERS = 80
"""How much is shown of the command line of who holds a lock."""


def lock(descriptor: int, path: Path, seconds: float = inf) -> bool:
    """Hold the lock of the open file `path` until it is closed; false after so many `seconds`.

    Reading a file is enough to lock it. So who may not write it keeps nobody out: beside such a
    lock this goes on without one. Once it has waited for a second, it logs for which process.
    """
    began, told = time.monotonic(), False
    while not _taken(descriptor):
        status = os.fstat(descriptor)
        holders = _holders(status)
        if holders and not any(_may_write(pid, status) for pid in holders):
            log.warning("%s is locked by %s, which may not write it", path, _shown(holders[0]))
            return True
        waited = time.monotonic() - began
        if waited >= seconds:
            return False
        if waited >= PATIENCE_SECONDS and not told:
            log.warning("%s is locked by %s: waiting for it to end", path, holder(descriptor))
            told = True
        time.sleep(LOOK_SECONDS)
    return True


def holder(descriptor: int) -> str:
    """Who holds the lock of an open file, for people."""
    holders = _holders(os.fstat(descriptor))
    return _shown(holders[0]) if holders else "a process that cannot be seen from here"


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _may_write(pid: int, status: os.stat_result) -> bool:
    """Whether a process may be of somebody who may write a file."""
    try:  # the real user: to run as another one, it is enough to begin `su`
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
        user = int(text.partition("\nUid:")[2].split()[0])
    except (OSError, LookupError, ValueError):  # it has ended
        return True
    others = stat.S_IWGRP | stat.S_IWOTH
    return user in (0, status.st_uid, os.geteuid()) or bool(status.st_mode & others)


def _holders(status: os.stat_result) -> list[int]:
    """The processes that hold the lock of a file, all or none; /proc/locks in proc(5)."""
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    found = []
    with contextlib.suppress(OSError):
        for line in LOCKS.read_text(encoding="ascii").splitlines():
            match line.split():
                case [_, "FLOCK", _, _, pid, place, *_] if place == f"{device}:{status.st_ino}":
                    found.append(int(pid))
    return found if all(pid > 0 for pid in found) else []


def _shown(pid: int) -> str:
    """A process and its command line, which may be anything."""
    line = ""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ")
        line = words.decode(errors="replace")
    line = "".join(one if one.isprintable() else "?" for one in line[:MOST_CHARACTERS])
    return f"process {pid} ({line})" if line else f"process {pid}"


T = TypeVar("T")


def wait_until(ready: Callable[[], T], seconds: float, pause: float) -> T:
    """Call `ready`, with pauses, until it is true or so many seconds are over; its last answer."""
    deadline = time.monotonic() + seconds
    while not (found := ready()) and time.monotonic() < deadline:
        time.sleep(pause)
    return found
