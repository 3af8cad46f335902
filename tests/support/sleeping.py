"""What comes true by and by, and whether a process sleeps, as the kernel's counts of it say."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
PATIENCE_SECONDS = 200.0
LOOK_SECONDS = 1.0


def until(done: Callable[[], T]) -> T:
    """What is said as soon as that is true; else what is said in the end."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := done()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def sleeps(pid: int) -> bool:
    """Whether the process is woken up by nothing for a while; it may be on its way to sleep."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    before, now = -1, _switches(pid)
    while before != now and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
        before, now = now, _switches(pid)
    return before == now


def _switches(pid: int) -> int:
    """How often its threads began to run."""
    found = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        lines = status.read_text(encoding="utf-8").splitlines()
        found += sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)
    return found
