"""Kernel threads that receive what is steered to a CPU: backlog NAPI, Linux 6.10 and newer.

A packet that no card's queue received (one of a veth port, or one that RPS steers) waits in the
backlog of a CPU. Its softirq takes it from there, or a thread of that CPU does: always with
PREEMPT_RT, and elsewhere with `thread_backlog_napi` on the kernel's line (net/core/dev.c). The
kernel makes these threads only where it uses them.
"""

from __future__ import annotations

import re
from pathlib import Path

_NAME = re.compile(r"backlog_napi/(\d+)")
_KTHREADD = "2"
"""The parent of all threads of the kernel."""


def backlog_threads(proc: Path = Path("/proc")) -> dict[int, int]:
    """The thread of each CPU, by the CPU's number; none where softirqs receive."""
    found = {}
    for folder in proc.glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:  # it ended meanwhile
            continue
        # proc_pid_stat(5): its number, its name in brackets, its state, its parent.
        name, _, rest = stat.partition("(")[2].rpartition(")")
        match = _NAME.fullmatch(name)
        if match is not None and rest.split()[1] == _KTHREADD:
            found[int(match[1])] = int(folder.name)
    return found
