"""What a network interface says about the time stamps that it can take."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass

from tailtap.base.errors import InputError
from tailtap.host.net.netdev import gives_stamps
from tailtap.remote.local import LocalHost

_CLOCK = re.compile(r"(?:PTP Hardware Clock|Hardware timestamp provider index): (\d+)")


@dataclass(frozen=True)
class Timestamping:
    """An interface's answer."""

    interface: str
    driver: str | None
    capabilities: frozenset[str]
    """As ``ethtool -T`` names them: ``hardware-receive``, ``hardware-raw-clock``…"""
    clock: int | None
    """The number of its clock, N of ``/dev/ptpN``."""
    filters: tuple[str, ...]
    """Which received packets it can stamp in hardware: ``none``, ``all``, ``ptpv2-event``…"""
    metadata: bool | None
    """Whether its driver gives stamps to XDP programs; None when the kernel does not tell."""


def timestamping(interface: str) -> Timestamping:
    """Ask `interface` of this process's network namespace.

    Raises `InputError` when there is none, `MachineError` when ethtool is missing or fails.
    """
    try:
        index = socket.if_nametoindex(interface)
    except OSError as error:
        raise InputError(
            f"no interface {interface!r} in this network namespace (`ip link` lists them)"
        ) from error
    host = LocalHost()
    told = host.run(["ethtool", "-T", interface]).stdout
    driver = re.search(
        r"^driver: (\S+)", host.run(["ethtool", "-i", interface], check=False).stdout
    )
    name = None if driver is None else driver[1]
    return parse(interface, told, driver=name, metadata=gives_stamps(index))


def parse(interface: str, told: str, *, driver: str | None, metadata: bool | None) -> Timestamping:
    """The answer in what ``ethtool -T`` of any version printed.

    Sections have a title that ends with a colon and one word a line; some versions show the
    kernel's name of the word in parentheses behind it.
    """
    sections: dict[str, list[str]] = {}
    title = ""
    for line in told.splitlines():
        if line[:1].isspace() and line.strip():
            sections.setdefault(title, []).append(line.split()[0])
        else:
            title = line.partition(":")[0].strip()
    clock = _CLOCK.search(told)
    return Timestamping(
        interface=interface,
        driver=driver,
        capabilities=frozenset(sections.get("Capabilities", ())),
        clock=None if clock is None else int(clock[1]),
        filters=tuple(sections.get("Hardware Receive Filter Modes", ())),
        metadata=metadata,
    )
