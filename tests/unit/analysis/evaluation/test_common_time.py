"""Lost is what the device lost, while both captures ran, of what it was to forward."""

from __future__ import annotations

import shutil
import socket
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from captures import frame, pcap

from tailtap.analysis.evaluation import Evaluation, evaluate
from tailtap.analysis.evaluation.clocks import known
from tailtap.records.evaluation import Counts

MS = 1_000_000
START = 1_760_000_000_000 * MS
GAP = 10 * MS
Packets = list[tuple[int, bytes]]
#: What becomes of the packets before the device: each is in one of these.
FATES = ("matched", "lost", "outside_ingress", "not_forwarded", "to_device")


def taken(packets: int = 1000) -> tuple[Packets, Packets]:
    """A second of packets every ten milliseconds, and what left 7 to 9 us later, in their order."""
    before = [(START + GAP * number, frame(number)) for number in range(packets)]
    after = [(time + 7_000 + time // GAP % 3 * 1_000, data) for time, data in before]
    return before, after


def between(packets: Packets, begin: int, end: int) -> Packets:
    return [packet for packet in packets if begin <= packet[0] - START < end]


def write(folder: Path, before: Packets, after: Packets) -> tuple[Path, Path]:
    paths = folder / "in.pcap", folder / "out.pcap"
    for path, packets in zip(paths, (before, after), strict=True):
        path.write_bytes(pcap(packets))
    return paths


def fates(counts: Counts) -> dict[str, int]:
    """What became of the packets before the device; these are all of them."""
    found = {name: getattr(counts, name) for name in FATES}
    assert sum(found.values()) == counts.ingress
    return {name: count for name, count in found.items() if count}


def plain(folder: Path, before: Packets, after: Packets, **options: Any) -> Evaluation:
    return evaluate(*write(folder, before, after), **options)


def of_two_clocks(folder: Path, before: Packets, after: Packets, **options: Any) -> Evaluation:
    """The clock behind the device is an hour ahead, to 2 us."""
    hour = 3_600_000 * MS
    ahead = [(time + hour, data) for time, data in after]
    return plain(folder, before, ahead, clocks=known(hour - 2_000, hour + 2_000), **options)


def test_captures_of_two_clocks_cover_what_both_do(tmp_path: Path) -> None:
    before, after = taken()
    gone = [100, 101, 500, 501, *range(880, 895)]
    left = [packet for number, packet in enumerate(after) if number not in gone]
    before.insert(500, before.pop(3))  # between two of them
    found = of_two_clocks(tmp_path, before, between(left, 990 * MS, 8_970 * MS))
    lost = {"matched": 798 - len(gone), "lost": len(gone), "outside_ingress": 202}
    assert fates(found.counts) == lost
    assert found.lost_packets.position.tolist() == [99, 100, 499, *gone[3:]]
    assert found.lost_packets.burst.tolist() == [2, 2, 1, 1, *[15] * 15]


def test_any_record_shows_that_a_capture_ran(tmp_path: Path) -> None:
    """The device lost the last packets, as something else came out after them."""
    before, after = taken()
    other = frame(7, marker=0)
    found = plain(tmp_path, before, [*after[:-15], (after[-1][0] + MS, other)], key="moonsniff")
    assert fates(found.counts) == {"matched": 985, "lost": 15}


MACS = {"router": "020000000001", "host": "020000000009", "behind": "020000000002"}
HOST, ROUTER, SERVER = "10.0.0.9", "10.0.0.1", "203.0.113.9"


def ethernet(to: str, source: str, kind: int, rest: bytes) -> bytes:
    return bytes.fromhex(to + source) + struct.pack(">H", kind) + rest.ljust(46, b"\0")


def ip(source: str, to: str, number: int, *, protocol: int = 17, ttl: int = 64) -> bytes:
    body = struct.pack(">HHHHI", 1024, 22, 12, 0, number)
    return struct.pack(
        ">BBHHHBBH4s4s", 0x45, 0, 20 + len(body), number, 0, ttl, protocol, 0,
        socket.inet_aton(source), socket.inet_aton(to),
    ) + body  # fmt: skip


def to_router(source: str, to: str, number: int, **more: int) -> bytes:
    return ethernet(MACS["router"], MACS["host"], 0x800, ip(source, to, number, **more))


def from_router(source: str, number: int, **more: int) -> bytes:
    return ethernet(MACS["host"], MACS["router"], 0x800, ip(source, HOST, number, **more))


def with_others(
    folder: Path, others: Packets, *, routes: bool, left: Packets | None = None
) -> Evaluation:
    """200 packets through a device, and others among them that come to it."""
    sent = [(START + GAP * number, number) for number in range(200)]
    before = [(time, to_router(HOST, SERVER, number)) for time, number in sent]
    behind = MACS["behind"], MACS["router"][:-1] + "3"
    macs = behind if routes else (MACS["router"], MACS["host"])
    after = [
        (time + 7_000, ethernet(*macs, 0x800, ip(HOST, SERVER, number, ttl=63 if routes else 64)))
        for time, number in sent
    ]
    return plain(folder, sorted(before + others), sorted(after + (left or [])))


def at(*frames: bytes) -> Packets:
    return [(START + 1_000 * MS + 3 * MS * place, data) for place, data in enumerate(frames)]


GROUPS = {
    "STP": ethernet("0180c2000000", MACS["host"], 0x26, b"\x42\x42\x03"),
    "pause": ethernet("0180c2000001", MACS["host"], 0x8808, b"\0\1\xff\xff"),
    "LACP": ethernet("0180c2000002", MACS["host"], 0x8809, b"\1"),
    "LLDP": ethernet("0180c200000e", MACS["host"], 0x88CC, b"\2\7"),
}


def test_a_bridge_that_forwards_them_loses_what_does_not_leave(tmp_path: Path) -> None:
    frames = [ethernet("0180c200000e", MACS["host"], 0x88CC, bytes([2, 7, n])) for n in range(4)]
    found = with_others(tmp_path, at(*frames), routes=False, left=at(*frames[:3]))
    assert fates(found.counts) == {"matched": 203, "lost": 1}


@pytest.mark.parametrize(("behind", "ttl"), [("203.0.113.77", 63), (SERVER, 64)])
def test_an_address_that_nothing_shows_to_be_the_routers_is_lost(
    tmp_path: Path, behind: str, ttl: int
) -> None:
    """A host behind it, whose own packets are forwarded: all of those for it are lost, or some."""
    dropped = [to_router(HOST, behind, 1_000 + number) for number in range(5)]
    found = with_others(tmp_path, at(*dropped, from_router(behind, 7, ttl=ttl)), routes=True)
    assert fates(found.counts) == {"matched": 200, "lost": 5, "not_forwarded": 1}


@pytest.mark.skipif(shutil.which("tshark") is None, reason="needs tshark")
def test_tshark_counts_as_many(tmp_path: Path) -> None:
    found = with_others(tmp_path, at(*GROUPS.values()), routes=False)
    groups = "eth.dst[0:5] == 01:80:c2:00:00 && eth.dst[5] < 10"
    command = ["tshark", "-r", str(tmp_path / "in.pcap"), "-Y", groups]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert found.counts.not_forwarded == len(shown.splitlines()) == 4
