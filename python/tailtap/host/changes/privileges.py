"""What this process may do."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from tailtap.base.errors import MachineError

CAPABILITIES: Mapping[str, int] = {
    "CAP_NET_ADMIN": 12,
    "CAP_NET_RAW": 13,
    "CAP_SYS_ADMIN": 21,
    "CAP_BPF": 39,
}
"""What namespaces, raw sockets and eBPF need; include/uapi/linux/capability.h."""


def missing_capabilities() -> list[str]:
    """The capabilities that tailtap needs and this process lacks."""
    effective = 0
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("CapEff:"):
                effective = int(line.split()[1], 16)
    return [name for name, bit in CAPABILITIES.items() if not effective >> bit & 1]


def require_superuser(what: str) -> None:
    """Raises `MachineError` unless this process is root's; `what` needs that, as in a sentence."""
    if os.geteuid() != 0:
        raise MachineError(f"{what} needs root: run it with sudo")


def require_root() -> None:
    """Raises `MachineError` unless this process may make network namespaces and load eBPF."""
    if os.geteuid() != 0:
        raise MachineError("network namespaces and eBPF need root: run it with sudo")
    lacking = missing_capabilities()
    if lacking:
        raise MachineError(
            f"root lacks {', '.join(lacking)} here: run it outside of the container, or start "
            "the container with --privileged"
        )
