"""Flows: ranges of addresses and ports. All their combinations take turns."""

from __future__ import annotations

import re
from ipaddress import (
    AddressValueError,
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    summarize_address_range,
)
from math import prod
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, TypeAlias

from pydantic import BeforeValidator, Field

from tailtap.base.errors import InputError, naming
from tailtap.base.schema import Strict, Written

if TYPE_CHECKING:
    from tailtap.lab.generators.model import Traffic

Address: TypeAlias = IPv4Address | IPv6Address
Version: TypeAlias = Literal[4, 6]

MAX_FLOWS = 2**16 - 2
"""Flows given by their number differ in the last two bytes of the source address."""
DEFAULTS: dict[Version, tuple[str, str]] = {
    4: ("10.0.0.1", "10.1.0.1"),
    6: ("fd00::1", "fd00:0:0:1::1"),
}
"""Source and destination address of the first flow."""
CLIENT: dict[Version, str] = {4: "198.18.0.1", 6: "2001:2::1"}
SERVER: dict[Version, str] = {4: "198.18.0.2", 6: "2001:2::2"}
"""Where the DuT is a server, the addresses of the client and of it: of the ranges for benchmarks
(RFC 2544, RFC 5180)."""
DEFAULT_TTL = 64
"""The time to live that Linux gives its own packets (IPDEFTTL of include/net/ip.h)."""
PORTS = ("1024", "53")
"""Source and destination port, those of the traffic in "How Low Can You Go"."""


def parse_addresses(text: str, version: Version) -> tuple[Address, int]:
    """First address and number of addresses of ``10.0.0.1`` or ``10.0.0.1-10.0.0.9``.

    Raises `InputError` when the text is neither, or of another version of IP.
    """
    kind = IPv4Address if version == 4 else IPv6Address
    first, dash, last = text.partition("-")
    try:
        low = kind(first.strip())
        high = kind(last.strip()) if dash else low
    except AddressValueError as error:
        example = "10.0.0.1-10.0.0.9" if version == 4 else "fd00::1-fd00::9"
        raise InputError(
            f"{text!r} is no range of IPv{version} addresses: write it as {example!r}"
        ) from error
    return low, _count(text, int(low), int(high))


def parse_ports(text: str) -> tuple[int, int]:
    """First port and number of ports of ``53`` or ``1024-2047``. Raises `InputError`."""
    first, dash, last = (part.strip() for part in text.partition("-"))
    numbers = [first, last] if dash else [first, first]
    if not all(re.fullmatch("[0-9]{1,5}", number) and int(number) < 2**16 for number in numbers):
        raise InputError(f"{text!r} is no range of ports: write it as '1024-2047'")
    low, high = map(int, numbers)
    return low, _count(text, low, high)


def _count(text: str, low: int, high: int) -> int:
    if not 0 <= high - low < 2**32 - 1:
        raise InputError(f"the range {text!r} is empty or has more than 2^32 values")
    return high - low + 1


def _as_text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


PortRange = Annotated[
    str,
    BeforeValidator(_as_text),
    Written("port, or range of ports", or_schema={"type": "integer", "minimum": 0}),
]


class Flows(Strict):
    """Ranges as they are written; None is the default address or port."""

    src: str | None = Field(
        default=None,
        description="Source addresses: one, or a range. The default is 10.0.0.1, or fd00::1.",
        examples=["10.0.0.1-10.0.0.16"],
    )
    dst: str | None = Field(
        default=None,
        description="Destination addresses: one, or a range. The default is 10.1.0.1, or "
        "fd00:0:0:1::1.",
        examples=["10.1.0.1"],
    )
    sport: PortRange | None = Field(
        default=None,
        description="UDP source ports: one, or a range. The default is 1024.",
        examples=["1024-2047"],
    )
    dport: PortRange | None = Field(
        default=None,
        description="UDP destination ports: one, or a range. The default is 53.",
        examples=[5000],
    )

    def answers(self, version: Version) -> Flows:
        """The flows the other way: also what is left out here has its place there."""
        source, destination = DEFAULTS[version]
        return Flows(
            src=self.dst or destination,
            dst=self.src or source,
            sport=self.dport or PORTS[1],
            dport=self.sport or PORTS[0],
        )

    def ranges(self, version: Version) -> Ranges:
        """The ranges of IP `version`. Raises `InputError` naming the key of a wrong one."""
        source, destination = DEFAULTS[version]
        with naming("src"):
            sources = parse_addresses(self.src or source, version)
        with naming("dst"):
            destinations = parse_addresses(self.dst or destination, version)
        with naming("sport"):
            source_ports = parse_ports(self.sport or PORTS[0])
        with naming("dport"):
            destination_ports = parse_ports(self.dport or PORTS[1])
        return Ranges(sources, destinations, source_ports, destination_ports)


class Ranges(NamedTuple):
    """First values and how many of them; every combination is a flow."""

    source: tuple[Address, int]
    destination: tuple[Address, int]
    source_ports: tuple[int, int]
    destination_ports: tuple[int, int]

    @property
    def flows(self) -> int:
        """The number of flows."""
        return prod(values for _, values in self)


def prefixes(first: Address, count: int) -> list[IPv4Network | IPv6Network]:
    """The networks that have these addresses and no others."""
    return list(summarize_address_range(first, first + (count - 1)))


def numbered(count: int, version: Version) -> Flows:
    """`count` flows that differ in their source address. Raises `InputError` for too many."""
    if not 1 <= count <= MAX_FLOWS:
        raise InputError(
            f"{count} flows are not possible: give 1 to {MAX_FLOWS}, or ranges of addresses and "
            "ports"
        )
    first = DEFAULTS[version][0]
    return Flows(src=f"{first}-{ip_address(first) + (count - 1)}")


class Sending(NamedTuple):
    """Traffic, and the port that it is sent into."""

    port: str
    traffic: Traffic
