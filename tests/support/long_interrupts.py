"""Interrupts that take long, on a CPU that a test chooses: perf_event_open(2) and bpf(2).

A clock of perf expires in a timer's interrupt, and has a program of ours run there, which divides.
Nothing outlives this process.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import struct
from collections.abc import Iterator

import pytest
from uprobes import ATTRIBUTES, FD_CLOEXEC, PERF_EVENT_OPEN

BPF, PROG_LOAD, PROG_TYPE_PERF_EVENT = 321, 5, 7
"""Numbers on x86-64, and of include/uapi/linux/bpf.h."""
SOFTWARE, CPU_CLOCK = 1, 0
SET_BPF = 0x40042408
"""_IOW('$', 8, __u32): PERF_EVENT_IOC_SET_BPF."""
DIVISIONS = 120_000
"""The verifier walks through all of them: at most a million instructions."""


@contextlib.contextmanager
def long_interrupts(cpu: int, *, period_ns: int) -> Iterator[None]:
    """A timer's interrupt of some hundred microseconds on `cpu`, once a period of running time.

    Skips the test where the kernel refuses that.
    """
    library = ctypes.CDLL(None, use_errno=True)
    program = _load(library)
    attributes = ctypes.create_string_buffer(ATTRIBUTES)
    struct.pack_into("<IIQQ", attributes, 0, SOFTWARE, ATTRIBUTES, CPU_CLOCK, period_ns)
    event = library.syscall(PERF_EVENT_OPEN, attributes, -1, cpu, -1, FD_CLOEXEC)
    if event < 0:
        os.close(program)
        pytest.skip(f"no clock of perf on CPU {cpu}: {os.strerror(ctypes.get_errno())}")
    try:
        fcntl.ioctl(event, SET_BPF, program)
        yield
    finally:
        os.close(event)
        os.close(program)


def _load(library: ctypes.CDLL) -> int:
    def instruction(code: int, registers: int, offset: int, value: int) -> bytes:
        return struct.pack("<BBhi", code, registers, offset, value)

    code = b"".join(
        (
            instruction(0xB7, 0x01, 0, DIVISIONS),  # r1 = DIVISIONS
            instruction(0xB7, 0x00, 0, 0x7FFFFFFF),  # r0 = a large number
            instruction(0x3F, 0x10, 0, 0),  # r0 /= r1
            instruction(0x07, 0x00, 0, 0x7FFFFFFF),  # r0 += a large number
            instruction(0x17, 0x01, 0, 1),  # r1 -= 1
            instruction(0x55, 0x01, -4, 0),  # again unless r1 == 0
            instruction(0xB7, 0x00, 0, 0),  # r0 = 0: no sample
            instruction(0x95, 0, 0, 0),
        )
    )
    instructions = ctypes.create_string_buffer(code, len(code))
    licence = ctypes.create_string_buffer(b"GPL")
    request = struct.pack(
        "<IIQQIIQII", PROG_TYPE_PERF_EVENT, len(code) // 8, ctypes.addressof(instructions),
        ctypes.addressof(licence), 0, 0, 0, 0, 0,
    )  # fmt: skip
    buffer = ctypes.create_string_buffer(request, len(request))
    found: int = library.syscall(BPF, PROG_LOAD, buffer, len(request))
    if found < 0:
        pytest.skip(f"the kernel refuses the program: {os.strerror(ctypes.get_errno())}")
    return found
