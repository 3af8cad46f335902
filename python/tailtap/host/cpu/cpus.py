"""Which CPUs this machine has, and which of them we may use."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from tailtap.base.units import parse_cpus

FOLDER = Path("/sys/devices/system/cpu")


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
