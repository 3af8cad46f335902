"""pcapng files block by block, for what no program writes any more or should never write."""

from __future__ import annotations

import struct
from collections.abc import Iterable

ETHERNET, RADIO = 1, 127
MICROSECONDS, NANOSECONDS = None, 9


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    body = body.ljust(-(-len(body) // 4) * 4, b"\0")
    length = struct.pack(order + "I", len(body) + 12)
    return struct.pack(order + "I", kind) + length + body + length


def options(values: Iterable[tuple[int, bytes]], order: str = "<") -> bytes:
    parts = [
        struct.pack(order + "HH", code, len(value)) + value.ljust(-(-len(value) // 4) * 4, b"\0")
        for code, value in values
    ]
    return b"".join([*parts, bytes(4)]) if parts else b""


def section(order: str = "<") -> bytes:
    return block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1), order)


def interface(
    linktype: int = ETHERNET,
    resolution: int | None = NANOSECONDS,
    order: str = "<",
    *,
    fcs_len: int | None = None,
    name: str | None = None,
) -> bytes:
    """An interface; its stamps are microseconds where the resolution is not stated."""
    found = [] if name is None else [(2, name.encode())]
    found += [] if resolution is None else [(9, bytes([resolution]))]
    found += [] if fcs_len is None else [(13, bytes([fcs_len]))]
    return block(1, struct.pack(order + "HHI", linktype, 0, 0) + options(found, order), order)


def _stamp(units: int, order: str) -> bytes:
    return struct.pack(order + "II", units >> 32, units & 0xFFFFFFFF)


def enhanced(
    units: int, data: bytes, number: int = 0, order: str = "<", *, dropped: int | None = None
) -> bytes:
    """A packet of interface `number`, and how many were dropped before it."""
    body = struct.pack(order + "I", number) + _stamp(units, order)
    body += struct.pack(order + "II", len(data), len(data)) + data
    body = body.ljust(-(-len(body) // 4) * 4, b"\0")
    more = [] if dropped is None else [(4, struct.pack(order + "Q", dropped))]
    return block(6, body + options(more, order), order)


def obsolete(
    units: int, data: bytes, number: int = 0, order: str = "<", *, dropped: int = 0xFFFF
) -> bytes:
    """The same in the obsolete packet block; 0xffff drops are drops that nobody knows."""
    body = struct.pack(order + "HH", number, dropped) + _stamp(units, order)
    return block(2, body + struct.pack(order + "II", len(data), len(data)) + data, order)


def simple(data: bytes, order: str = "<") -> bytes:
    return block(3, struct.pack(order + "I", len(data)) + data, order)


def statistics(dropped: int, by_system: int = 0, number: int = 0, order: str = "<") -> bytes:
    values = [(5, struct.pack(order + "Q", dropped)), (7, struct.pack(order + "Q", by_system))]
    return block(5, struct.pack(order + "III", number, 0, 0) + options(values, order), order)
