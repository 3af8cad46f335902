"""CPUs on which what we do ourselves delays no packet."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Collection, Iterator

NICE = 10
"""The priority of who counts, setpriority(2)."""


def away_from(*occupied: Collection[int]) -> set[int]:
    """CPUs of this process that are in none of `occupied`, or at least not in the last of them."""
    allowed = os.sched_getaffinity(0)
    return allowed.difference(*occupied) or allowed.difference(occupied[-1]) or allowed


def settle(cpus: Collection[int]) -> None:
    """Have the calling thread, and those that it starts, work on these CPUs at low priority."""
    os.sched_setaffinity(0, cpus)
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)


@contextlib.contextmanager
def kept_to(cpus: Collection[int]) -> Iterator[None]:
    """Keep this thread, and what it starts, on these CPUs."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
