"""Runs a command to which the kernel refuses AF_XDP, as one built without it does.

Usage: python without_af_xdp.py COMMAND ... A seccomp filter answers socket(AF_XDP, ...) with
EAFNOSUPPORT; everything else is as ever. Needs root.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

AF_XDP = 44
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO = 0x7FFF0000, 0x00050000
SOCKET = {"x86_64": 41, "aarch64": 198}
"""Number of the system call."""
LOAD_WORD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
CALL_AT, FIRST_ARGUMENT_AT = 0, 16
"""Offsets in struct seccomp_data."""


class Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def refuse_af_xdp() -> None:
    """Installs the filter for this process and what it becomes."""
    steps = [
        (LOAD_WORD, 0, 0, CALL_AT),
        (JUMP_IF_EQUAL, 0, 3, SOCKET[platform.machine()]),
        (LOAD_WORD, 0, 0, FIRST_ARGUMENT_AT),
        (JUMP_IF_EQUAL, 0, 1, AF_XDP),
        (RETURN, 0, 0, SECCOMP_RET_ERRNO | errno.EAFNOSUPPORT),
        (RETURN, 0, 0, SECCOMP_RET_ALLOW),
    ]
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)
    program = Program(len(steps), code)
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")


if __name__ == "__main__":
    refuse_af_xdp()
    os.execvp(sys.argv[1], sys.argv[1:])
