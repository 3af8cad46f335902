"""How often a function of a program is called, counted by the kernel: perf_event_open(2), uprobes.

Nothing outlives this process, and nothing of it is tailtap's.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

PMU = Path("/sys/bus/event_source/devices/uprobe/type")
PERF_EVENT_OPEN = 298
"""Its number on x86-64."""
ATTRIBUTES = 136
"""Bytes of struct perf_event_attr: type and size, then the path's address and the offset at 56."""
FD_CLOEXEC = 8
LOAD = 1
"""A segment that is loaded (elf(5), PT_LOAD)."""


@contextlib.contextmanager
def counted_calls(program: Path, *functions: str) -> Iterator[Mapping[str, int]]:
    """Counts the calls on all CPUs during the body; the counts are there when it is over.

    Skips the test where the kernel has no uprobes or the program does not name the functions.
    """
    if not PMU.exists():
        pytest.skip("this kernel has no uprobes")
    offsets = _offsets(program)
    missing = set(functions) - set(offsets)
    if missing:
        pytest.skip(f"{program} does not name {', '.join(sorted(missing))}")
    counts: dict[str, int] = {}
    with contextlib.ExitStack() as stack:
        events = [
            (name, stack.enter_context(_open(program, offsets[name], cpu)))
            for name in functions
            for cpu in range(os.cpu_count() or 1)
        ]
        yield counts
        for name, event in events:
            counts[name] = counts.get(name, 0) + int.from_bytes(os.read(event, 8), "little")


@contextlib.contextmanager
def _open(program: Path, offset: int, cpu: int) -> Iterator[int]:
    path = ctypes.create_string_buffer(str(program).encode())
    attributes = ctypes.create_string_buffer(ATTRIBUTES)
    struct.pack_into("<II", attributes, 0, int(PMU.read_text()), ATTRIBUTES)
    struct.pack_into("<QQ", attributes, 56, ctypes.addressof(path), offset)
    library = ctypes.CDLL(None, use_errno=True)
    event = library.syscall(PERF_EVENT_OPEN, attributes, -1, cpu, -1, FD_CLOEXEC)
    if event < 0:
        raise OSError(ctypes.get_errno(), f"uprobe in {program} on CPU {cpu}")
    try:
        yield event
    finally:
        os.close(event)


def _offsets(program: Path) -> dict[str, int]:
    """Where each function that the program exports lies in its file."""
    content = program.read_bytes()
    [at] = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    segments = [struct.unpack_from("<IIQQQQ", content, at + size * n) for n in range(count)]
    said = subprocess.run(
        ["nm", "-D", "--defined-only", program], capture_output=True, text=True, check=True
    ).stdout
    found: dict[str, int] = {}
    for line in said.splitlines():
        address, kind, name = line.rsplit(maxsplit=2)
        for segment, _, offset, start, _, length in segments:
            if kind == "T" and segment == LOAD and start <= int(address, 16) < start + length:
                found[name] = int(address, 16) - start + offset
    return found
