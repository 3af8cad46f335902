"""CPUs: how the kernel writes sets of them, and which of them we may use."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path("/sys/devices/system/cpu")


def parse_cpus(text: str) -> tuple[int, ...]:
    """CPUs from the kernel's list of them: ``0-1,4`` is 0, 1 and 4."""
    cpus: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first:
            cpus.extend(range(int(first), int(last or first) + 1))
    return tuple(cpus)


def list_cpus(cpus: Iterable[int]) -> str:
    """CPUs as the kernel's files take them."""
    return ",".join(str(cpu) for cpu in sorted(cpus))


def usable(folder: Path = FOLDER) -> set[int]:
    """The CPUs that this process may run on.

    Those that `isolcpus` keeps free are no part of anybody's affinity, but may be asked for.
    """
    before = os.sched_getaffinity(0)
    found = set(before)
    with contextlib.suppress(OSError):
        for cpu in parse_cpus((folder / "online").read_text(encoding="ascii")):
            with contextlib.suppress(OSError):  # outside of our control group
                os.sched_setaffinity(0, {cpu})
                found.add(cpu)
        os.sched_setaffinity(0, before)
    return found


def is_offline(cpu: int, folder: Path = FOLDER) -> bool:
    """Whether this CPU is there, but switched off."""
    try:
        return (folder / f"cpu{cpu}/online").read_text(encoding="ascii").strip() == "0"
    except OSError:
        return False
