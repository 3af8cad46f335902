"""Locks of files, flock(2). Who has to wait for one says for whom."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import threading
from pathlib import Path

log = logging.getLogger("tailtap")
PATIENCE_SECONDS = 1.0
"""A wait that is shorter is not worth a word."""
MOST_CHARACTERS = 80
"""How much is shown of the command line of who holds a lock."""


def lock(descriptor: int, path: Path) -> None:
    """Hold the lock of the open file `path` until it is closed.

    Once this has waited for a second, it logs for which process.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        telling = threading.Timer(PATIENCE_SECONDS, _tell, (os.fstat(descriptor), path))
        telling.daemon = True
        telling.start()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        finally:
            telling.cancel()


def _tell(status: os.stat_result, path: Path) -> None:
    pid = _holder(status)
    whom = "a process that cannot be seen from here" if pid is None else _shown(pid)
    log.warning("%s is locked by %s: waiting for it to end", path, whom)


def _holder(status: os.stat_result) -> int | None:
    """The process that holds the lock of a file; /proc/locks in proc(5)."""
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    with contextlib.suppress(OSError):
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            match line.split():
                case [_, "FLOCK", _, _, pid, place, *_] if place == f"{device}:{status.st_ino}":
                    return int(pid) if int(pid) > 0 else None
    return None


def _shown(pid: int) -> str:
    """A process and its command line, which may be anything."""
    line = ""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ")
        line = words.decode(errors="replace")
    line = "".join(one if one.isprintable() else "?" for one in line[:MOST_CHARACTERS])
    return f"process {pid} ({line})" if line else f"process {pid}"
