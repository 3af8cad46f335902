"""What the kernel's generic netlink family ``netdev`` tells of interfaces, and sets of them.

Documentation/netlink/specs/netdev.yaml of the kernel. Interfaces are those of the network namespace
that the calling thread is in.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tailtap.base.errors import InputError
from tailtap.remote.local import LocalHost

SOFTIRQ, THREAD, BUSY = 0, 1, 2
"""What polls an instance of NAPI: `enum netdev_napi_threaded` of <linux/netdev.h>; `BUSY` is a
thread that polls without a pause (Linux 6.19)."""
_GET_DEVICE, _GET_NAPI, _SET_NAPI = 1, 11, 14
_INDEX: Final = "NETDEV_A_DEV_IFINDEX"
_METADATA: Final = "NETDEV_A_DEV_XDP_RX_METADATA_FEATURES"
_METADATA_TIMESTAMP = 1
"""NETDEV_XDP_RX_METADATA_TIMESTAMP of <linux/netdev.h>."""
_DEVICE = (
    ("NETDEV_A_DEV_UNSPEC", "none"),
    (_INDEX, "uint32"),
    ("NETDEV_A_DEV_PAD", "hex"),
    ("NETDEV_A_DEV_XDP_FEATURES", "uint64"),
    ("NETDEV_A_DEV_XDP_ZC_MAX_SEGS", "uint32"),
    (_METADATA, "uint64"),
)
_OF, _ID, _THREADED = "NETDEV_A_NAPI_IFINDEX", "NETDEV_A_NAPI_ID", "NETDEV_A_NAPI_THREADED"
_NAPI = (
    ("NETDEV_A_NAPI_UNSPEC", "none"),
    (_OF, "uint32"),
    (_ID, "uint32"),
    ("NETDEV_A_NAPI_IRQ", "uint32"),
    ("NETDEV_A_NAPI_PID", "uint32"),
    ("NETDEV_A_NAPI_DEFER_HARD_IRQS", "uint32"),
    ("NETDEV_A_NAPI_GRO_FLUSH_TIMEOUT", "uint64"),
    ("NETDEV_A_NAPI_IRQ_SUSPEND_TIMEOUT", "uint64"),
    (_THREADED, "uint32"),
)


def gives_stamps(index: int) -> bool | None:
    """Whether the driver of interface `index` gives receive stamps to XDP programs.

    None where the kernel does not tell (before Linux 6.7).
    """
    try:
        answers = _asked(_GET_DEVICE, _DEVICE, {_INDEX: index})
    except OSError:
        return None
    known = [one[_METADATA] for one in answers if _METADATA in one]
    return bool(known[0] & _METADATA_TIMESTAMP) if known else None


def polled(index: int) -> dict[int, int]:
    """What polls each instance of NAPI of interface `index`, by its number.

    Empty where the kernel does not tell (before Linux 6.17). Raises `OSError`.
    """
    answers = _asked(_GET_NAPI, _NAPI, {_OF: index}, many=True)
    return {one[_ID]: one[_THREADED] for one in answers if _THREADED in one}


def poll(instance: int, by: int) -> None:
    """Have an instance of NAPI polled so. Raises `OSError` where the kernel cannot."""
    _asked(_SET_NAPI, _NAPI, {_ID: instance, _THREADED: by})


def _asked(
    command: int,
    attributes: Sequence[tuple[str, str]],
    said: Mapping[str, int],
    *,
    many: bool = False,
) -> list[dict[str, Any]]:
    """The attributes of each answer. Raises `OSError`."""
    from pyroute2.netlink import NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, genlmsg
    from pyroute2.netlink.exceptions import NetlinkError
    from pyroute2.netlink.generic import GenericNetlinkSocket

    class Message(genlmsg):  # type: ignore[misc]
        """Those of one command."""

        nla_map = attributes

    request: Any = Message()
    request["cmd"], request["version"] = command, 1
    request["attrs"] = list(said.items())
    flags = NLM_F_REQUEST | (NLM_F_DUMP if many else NLM_F_ACK if command == _SET_NAPI else 0)
    try:
        with GenericNetlinkSocket() as netlink:
            netlink.bind("netdev", Message)
            answers = netlink.nlm_request(request, msg_type=netlink.prid, msg_flags=flags)
            return [dict(answer["attrs"]) for answer in answers if "attrs" in answer]
    except NetlinkError as error:
        raise OSError(error.code, str(error)) from error


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
