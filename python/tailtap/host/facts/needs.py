"""What this process may do."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from tailtap.base.errors import MachineError
from tailtap.base.proc import status
from tailtap.remote import Host

CAPABILITIES: Mapping[str, int] = {
    "CAP_NET_ADMIN": 12,
    "CAP_NET_RAW": 13,
    "CAP_SYS_ADMIN": 21,
    "CAP_BPF": 39,
}
"""What namespaces, raw sockets and eBPF need; include/uapi/linux/capability.h."""
LAST_CAPABILITY = Path("/proc/sys/kernel/cap_last_cap")


def missing_capabilities() -> list[str]:
    """The capabilities that tailtap needs and this process lacks, of those that this kernel has.

    Before Linux 5.8 there is no CAP_BPF: CAP_SYS_ADMIN allows what it does.
    """
    effective, last = int(status().get("CapEff", "0"), 16), int(LAST_CAPABILITY.read_text())
    return [name for name, bit in CAPABILITIES.items() if bit <= last and not effective >> bit & 1]


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


def require_programs(key: str, remedy: str) -> None:
    """Raises `MachineError` for `key` where the kernel refuses what our eBPF programs are made of.

    Whoever may not load programs is not asked.
    """
    from tailtap import _core

    if not _core.takes_programs():
        raise MachineError(
            f"Linux {os.uname().release} does not take our eBPF programs, 5.8 and newer do",
            place=key,
            remedy=f"boot such a kernel, or {remedy}",
        )


AF_XDP = 44
"""Not named by Python's socket module; include/linux/socket.h."""
OPTIONS = {AF_XDP: "CONFIG_XDP_SOCKETS", int(socket.AF_PACKET): "CONFIG_PACKET"}
"""What a kernel is built with to have them."""


def refusal(family: int) -> OSError | None:
    """Why no raw socket of this family can be opened; None when one can."""
    try:
        socket.socket(family, socket.SOCK_RAW).close()
    except OSError as error:
        return error
    return None


def require_socket(name: str, family: int) -> None:
    """Raises `MachineError` when no raw socket of the family `name` can be opened."""
    error = refusal(family)
    if error is not None:
        raise MachineError(
            f"no {name} socket can be opened here ({error.strerror}): take a kernel with "
            f"{OPTIONS[family]}"
        )


# Debian has a package for each driver; elsewhere they may be part of the program.
_DRIVER = """for folder in /usr/lib/*/dpdk/pmds-*; do
    [ -d "$folder" ] || exit 0
    for name in "$@"; do
        ls "$folder/librte_$name.so"* > /dev/null 2>&1 || { echo "$name"; exit 1; }
    done
done"""


def require_drivers(host: Host, names: Sequence[str]) -> None:
    """Raises `MachineError` when a driver, such as ``net_vhost``, is missing on `host`."""
    asked = host.run(["sh", "-c", _DRIVER, "drivers", *names], check=False)
    if asked.status != 0:
        name = asked.stdout.strip()
        raise MachineError(
            f"DPDK's driver {name} is missing on {host.name}: apt-get install "
            f"librte-{name.replace('_', '-')}23, or run `make forwarders`"
        )
