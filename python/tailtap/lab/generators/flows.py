"""What packets are like: flows, which are ranges of addresses and ports, sizes, or a capture.

All combinations of the ranges take turns. A capture is sent instead of tailtap's own packets.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
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
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeAlias

from pydantic import BeforeValidator, Field, PlainSerializer, SerializationInfo

from tailtap.base.errors import InputError, NotRead, naming
from tailtap.base.schema import Strict, Written, as_value_error, as_written, quantity_pattern
from tailtap.base.units import SIZE_UNITS, parse_size

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
    cards: tuple[str, str] | None = None
    """The PCI addresses of the cards that send and absorb, where the kernel has handed both over
    to the generator."""


MIN_SIZE = 64
"""Smallest Ethernet frame in bytes, with its 4-byte frame check sequence."""

MAX_SIZE = 9018
"""Largest frame in bytes: 9000 bytes of payload, the Ethernet header and the check sequence."""

MIXES: Mapping[str, tuple[int, ...]] = {
    # Seven small, four middle, one large packet, as evenly mixed as twelve can be.
    "imix": (64, 594, 64, 64, 594, 64, 1518, 64, 594, 64, 594, 64),
}
"""Sequences that have a name: the Internet mix of seven 64 B, four 594 B and one 1518 B."""

SizeSpec: TypeAlias = int | str | tuple[int, ...]
"""A size, the name of a mix, or a sequence of sizes that is sent again and again."""


def header_bytes(version: int, tagged: bool) -> int:
    """What a packet of IP `version` has besides its UDP payload: headers, a VLAN tag or none, and
    the check sequence.
    """
    return 14 + 4 * tagged + (20 if version == 4 else 40) + 8 + 4


def least_size(version: int, tagged: bool) -> int:
    """Smallest packet that holds the headers of IP `version`, a VLAN tag or none, and the id."""
    return max(MIN_SIZE, header_bytes(version, tagged) + 5)


def sizes_of(spec: SizeSpec, least: int) -> tuple[int, ...]:
    """The sequence of sizes; those of a named mix are at least `least`, which holds the headers."""
    if isinstance(spec, str):
        return tuple(max(size, least) for size in MIXES[spec])
    return spec if isinstance(spec, tuple) else (spec,)


def parse_sizes(value: object) -> SizeSpec:
    """``64 B``, ``imix``, or several sizes: a list, or a text with commas.

    Raises `InputError` when it is none of these or a size is no Ethernet frame.
    """
    if isinstance(value, str) and value.strip() in MIXES:
        return value.strip()
    several: Sequence[object] | None = None
    if isinstance(value, list | tuple):
        several = value
    elif isinstance(value, str) and "," in value:
        several = value.split(",")
    if several is None:
        return _frame(value)
    if not several:
        raise InputError("an empty list of sizes sends nothing: write at least one")
    return tuple(_frame(size) for size in several)


def _frame(value: object) -> int:
    size = parse_size(value)
    if not MIN_SIZE <= size <= MAX_SIZE:
        raise InputError(
            f"{size} B is no Ethernet frame: with its check sequence one has "
            f"{MIN_SIZE} B to {MAX_SIZE} B"
        )
    return size


def _validate(value: object) -> object:
    with as_value_error():
        return parse_sizes(value)


def _write(spec: SizeSpec, info: SerializationInfo) -> Any:
    if isinstance(spec, str) or not as_written(info):
        return spec
    return f"{spec} B" if isinstance(spec, int) else [f"{size} B" for size in spec]


_ONE = quantity_pattern(SIZE_UNITS)

_SEVERAL = rf"^\s*({'|'.join(MIXES)}|{_ONE}(\s*,\s*{_ONE})*)\s*$"

_TEXT = {"type": "string", "pattern": _SEVERAL}

Sizes = Annotated[
    SizeSpec,
    BeforeValidator(_validate),
    PlainSerializer(_write),
    Written(
        "size, `imix`, or list of sizes",
        lambda value: value if isinstance(value, str) else f"{value} B",
        {"anyOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1}]},
    ),
]
"""Sizes in an experiment file."""


class Recording(NamedTuple):
    """What a capture holds."""

    packets: int
    with_id: int
    """Packets that have an id when they are sent."""
    period_ns: int
    """The time in ns from its first packet to the first packet of the next round."""
    largest: int
    """Its largest frame in bytes, check sequence included."""

    @property
    def rate(self) -> int:
        """Packets a second on average, at least 1."""
        return max(1, round(self.packets * 1e9 / self.period_ns))


class Replay(Strict):
    """A capture, its pace, and whether tailtap writes ids into its packets."""

    file: str = Field(description="The path of the capture.", examples=["trace.pcap"])
    pace: Literal["own", "rate"] = Field(
        default="own",
        description="own sends the packets in the times of the capture, rate at traffic.rate and "
        "in traffic.pattern.",
        examples=["rate"],
    )
    ids: Literal["stamp", "keep"] = Field(
        default="stamp",
        description="stamp writes an id into each UDP packet, keep sends the packets as they are, "
        "with ids that they have.",
        examples=["keep"],
    )

    def recording(self) -> Recording:
        """Read the file. Raises `InputError` when it cannot be replayed with ids to measure by."""
        path = Path(self.file)
        try:
            status = path.stat()
        except OSError as error:
            raise NotRead(error, f"cannot read {path}") from error
        found = _read(path, self.ids == "stamp", status.st_mtime_ns, status.st_size)
        if not found.with_id:
            raise InputError("no packet has an id that taps read: write ids: stamp").at(path)
        return found


@functools.lru_cache
def _read(path: Path, stamp_ids: bool, *version: int) -> Recording:
    """Captures are large, and every combination of an experiment asks for them."""
    from tailtap import _core

    return Recording(*_core.recording(path, stamp_ids))


def _from_text(value: object) -> Any:
    return {"file": value} if isinstance(value, str) else value


ReplaySpec = Annotated[
    Replay, BeforeValidator(_from_text), Written("path, or mapping", or_schema={"type": "string"})
]
"""In an experiment file: a path, or a mapping."""
