"""Capture files made by the tests, with numpy for many packets and by hand for odd ones."""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import zstandard
from blocks import enhanced, interface, section
from numpy.typing import ArrayLike, NDArray
from stamps import OPEN, header
from stamps import records as stamp_records

ETHERNET = 1
FRAME_LEN = 60
MICROSECONDS = 0xA1B2C3D4
NANOSECONDS = 0xA1B23C4D
COMPRESSIONS = ("zstd", "gzip", "xz", "lz4", "bzip2")


def frame(
    packet_id: int, *, tags: Sequence[int] = (), ipv6: bool = False, marker: int = 0x55
) -> bytes:
    """An Ethernet frame of at least 60 bytes with a UDP payload in MoonSniff's layout."""
    payload = struct.pack("<IB", packet_id & 0xFFFFFFFF, marker).ljust(18, b"\0")
    udp = struct.pack(">HHHH", 1024, 53, 8 + len(payload), 0xBEEF) + payload
    if ipv6:
        network = struct.pack(">IHBB", 6 << 28, len(udp), 17, 64) + bytes(31) + b"\1"
        network = network.ljust(40, b"\0")
    else:
        network = struct.pack(
            ">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), packet_id & 0xFFFF, 0, 64, 17, 0xABCD,
            b"\x0a\0\0\1", b"\x0a\1\0\1",
        )  # fmt: skip
    ethertype = struct.pack(">H", 0x86DD if ipv6 else 0x0800)
    vlan = b"".join(struct.pack(">HH", 0x8100, tag) for tag in tags)
    return (b"\2" * 12 + vlan + ethertype + network + udp).ljust(FRAME_LEN, b"\0")


def pcap(
    packets: Iterable[tuple[int, bytes]],
    *,
    magic: int = NANOSECONDS,
    order: str = "<",
    linktype: int = ETHERNET,
    snap: int = 65535,
) -> bytes:
    """A pcap file of (time in ns, frame)."""
    scale = 1 if magic == NANOSECONDS else 1000
    parts = [struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, snap, linktype)]
    for time, data in packets:
        seconds, rest = divmod(time, 1_000_000_000)
        header = struct.pack(
            order + "IIII", seconds, rest // scale, min(len(data), snap), len(data)
        )
        parts += [header, data[:snap]]
    return b"".join(parts)


def pcapng(
    packets: Iterable[tuple[int, bytes]],
    *,
    order: str = "<",
    tsresol: int | None = 9,
    linktype: int = ETHERNET,
) -> bytes:
    """A pcapng file with one section and one interface; `tsresol` None means microseconds."""

    blocks = [section(order), interface(linktype, tsresol, order)]
    for time, data in packets:
        match tsresol:
            case None:
                units = time // 1000
            case resolution if resolution & 0x80:
                units = -(-(time << (resolution & 0x7F)) // 1_000_000_000)
            case resolution:
                units = time * 10**resolution // 1_000_000_000
        blocks.append(enhanced(units, data, order=order))
    return b"".join(blocks)


def erf(
    packets: Iterable[tuple[int, bytes]], *, kind: int = 2, port: int = 0, drops: int = 0
) -> bytes:
    """An ERF file of (time in ns, frame), filled up to 8 bytes as cards do; the first record tells
    how many packets the card dropped."""
    records = []
    for number, (time, data) in enumerate(packets):
        seconds, rest = divmod(time, 1_000_000_000)
        stamp = seconds << 32 | (rest << 32) // 1_000_000_000
        body = (bytes(2) if kind == 2 else b"") + data
        body = body.ljust(-(-len(body) // 8) * 8, b"\0")
        lost = drops if number == 0 else 0
        header = struct.pack(">BBHHH", kind, 4 | port, 16 + len(body), lost, len(data))
        records.append(struct.pack("<Q", stamp) + header + body)
    return b"".join(records)


def with_trailer(
    data: bytes, time: int, *, kind: str = "metamako", port: int = 1, fields: bytes = b""
) -> bytes:
    """A frame with its check sequence and the stamp that a switch put behind it."""
    seconds, rest = divmod(time, 1_000_000_000)
    start = data + struct.pack("<I", zlib.crc32(data))
    if kind == "metamako":
        flags = 1 | (2 if fields else 0)
        return start + fields + struct.pack(">IIBHB", seconds, rest, flags, 7, port)
    fraction = -(-(rest << 40) // 1_000_000_000)
    return start + struct.pack(">BBI", 7, port, seconds) + fraction.to_bytes(5, "big") + b"\0"


def mscap(packets: Iterable[tuple[int, int]]) -> bytes:
    return b"".join(struct.pack("<QI", time, packet_id) for time, packet_id in packets)


def stamps(
    packets: Iterable[tuple[int, int]],
    *,
    counts: tuple[int, int, int, int] | None = None,
    closed: bool = True,
) -> bytes:
    """A stamp file of (time in ns, id); `counts` are seen, stored, lost and other."""
    pairs = list(packets)
    written = stamp_records([time for time, _ in pairs], [key for _, key in pairs])
    stored = (written.size, written.size, 0, 0)
    return header((counts or stored) if closed else OPEN) + written.tobytes()


def compressed(data: bytes, how: str) -> bytes:
    match how:
        case "zstd":
            return zstandard.ZstdCompressor().compress(data)
        case "gzip":
            return gzip.compress(data)
        case "xz":
            return lzma.compress(data)
        case "lz4":
            return bytes(pa.compress(data, codec="lz4", asbytes=True))
        case "bzip2":
            return bz2.compress(data)
        case _:
            return data


RECORD = np.dtype(
    [("seconds", "<u4"), ("ns", "<u4"), ("captured", "<u4"), ("wire", "<u4"), ("frame", "u1", 60)]
)


def records(times: ArrayLike, ids: ArrayLike) -> NDArray[np.void]:
    """Records of a nanosecond pcap: 60-byte frames with the given ids, made quickly."""
    time = np.asarray(times, np.int64)
    key: NDArray[np.uint32] = np.asarray(ids).astype("<u4")
    made = np.zeros(len(time), RECORD)
    made["seconds"] = time // 1_000_000_000
    made["ns"] = time % 1_000_000_000
    made["captured"] = made["wire"] = FRAME_LEN
    made["frame"] = np.frombuffer(frame(0), np.uint8)
    made["frame"][:, 42:46] = key.view(np.uint8).reshape(-1, 4)
    return made


def write_many(path: Path, times: ArrayLike, ids: ArrayLike) -> None:
    with path.open("wb") as file:
        file.write(pcap([]))
        records(times, ids).tofile(file)
