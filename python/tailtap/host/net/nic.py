"""What a network interface says about the time stamps that it can take."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from typing import Any

from tailtap.records.errors import InputError
from tailtap.remote.local import LocalHost

_CLOCK = re.compile(r"(?:PTP Hardware Clock|Hardware timestamp provider index): (\d+)")
_METADATA_TIMESTAMP = 1
"""NETDEV_XDP_RX_METADATA_TIMESTAMP of <linux/netdev.h>."""


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
    return parse(interface, told, driver=name, metadata=_gives_metadata(index))


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


def _gives_metadata(index: int) -> bool | None:
    """Whether the driver of interface `index` gives receive stamps to XDP programs.

    The kernel tells from Linux 6.7 on, in its generic netlink family ``netdev``.
    """
    from pyroute2.netlink import NLM_F_REQUEST, genlmsg
    from pyroute2.netlink.exceptions import NetlinkError
    from pyroute2.netlink.generic import GenericNetlinkSocket

    class Device(genlmsg):  # type: ignore[misc]
        """Documentation/netlink/specs/netdev.yaml."""

        prefix = "NETDEV_A_DEV_"
        nla_map = (
            ("NETDEV_A_DEV_UNSPEC", "none"),
            ("NETDEV_A_DEV_IFINDEX", "uint32"),
            ("NETDEV_A_DEV_PAD", "hex"),
            ("NETDEV_A_DEV_XDP_FEATURES", "uint64"),
            ("NETDEV_A_DEV_XDP_ZC_MAX_SEGS", "uint32"),
            ("NETDEV_A_DEV_XDP_RX_METADATA_FEATURES", "uint64"),
        )

    get_device = 1
    request: Any = Device()
    request["cmd"], request["version"] = get_device, 1
    request["attrs"] = [("NETDEV_A_DEV_IFINDEX", index)]
    try:
        with GenericNetlinkSocket() as netlink:
            netlink.bind("netdev", Device)
            answers = netlink.nlm_request(request, msg_type=netlink.prid, msg_flags=NLM_F_REQUEST)
            features = [
                answer.get_attr("NETDEV_A_DEV_XDP_RX_METADATA_FEATURES") for answer in answers
            ]
    except (NetlinkError, OSError):
        return None
    known = [feature for feature in features if feature is not None]
    return bool(known[0] & _METADATA_TIMESTAMP) if known else None
