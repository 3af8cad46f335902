"""What our own eBPF programs cost while something is observed, by the kernel's own statistics.

The kernel counts the time of every program while a descriptor asks it to (bpf(2),
``BPF_ENABLE_STATS``). It goes with the process, unlike the sysctl, and costs each program some tens
of nanoseconds a run meanwhile; so it is asked for a moment only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tailtap.base.errors import MachineError

MOMENT_SECONDS = 0.25
_NUMBERS = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "s390x": 351, "ppc64le": 361}
"""That of bpf(2), by machine."""
_ENABLE_STATS = 32
_ATTRIBUTES = 128
"""Bytes of its argument, of which the first four are BPF_STATS_RUN_TIME, 0."""
_RUN_TIME = re.compile(r"^prog_id:\s*(\d+)$.*^run_time_ns:\s*(\d+)$", re.MULTILINE | re.DOTALL)


def shares(processes: Sequence[int | None]) -> tuple[list[float], int]:
    """The share of one core's time that the eBPF programs of each process take, and how many ns
    that was measured. None and what is gone take nothing. Raises `MachineError`.
    """
    with _counting():
        before, began = [_spent(pid) for pid in processes], time.monotonic_ns()
        time.sleep(MOMENT_SECONDS)
        after, took = [_spent(pid) for pid in processes], time.monotonic_ns() - began
    spent = [
        sum(now - earlier.get(program, now) for program, now in later.items())
        for earlier, later in zip(before, after, strict=True)
    ]
    return [one / took for one in spent], took


@contextlib.contextmanager
def _counting() -> Iterator[None]:
    number = _NUMBERS.get(platform.machine())
    if number is None:
        raise MachineError(f"the cost of programs is not known on {platform.machine()}")
    attributes = ctypes.create_string_buffer(_ATTRIBUTES)
    call = ctypes.CDLL(None, use_errno=True).syscall
    descriptor = call(number, _ENABLE_STATS, attributes, _ATTRIBUTES)
    if descriptor < 0:
        reason = os.strerror(ctypes.get_errno())
        raise MachineError(f"the cost of programs is not known: bpf: {reason} (Linux 5.8, root)")
    try:
        yield
    finally:
        os.close(descriptor)


def _spent(pid: int | None) -> dict[str, int]:
    """The time in ns of each program that a process holds, by the program's number."""
    found: dict[str, int] = {}
    if pid is None:
        return found
    with contextlib.suppress(OSError):  # it ended
        for path in Path(f"/proc/{pid}/fdinfo").iterdir():
            with contextlib.suppress(OSError):
                match = _RUN_TIME.search(path.read_text(encoding="ascii"))
                if match:
                    found[match[1]] = int(match[2])
    return found
