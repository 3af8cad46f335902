"""Lost is what the device lost, while both captures ran, of what it was to forward."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from captures import frame, pcap

from tailtap.analysis.evaluation import Evaluation, evaluate
from tailtap.analysis.evaluation.clocks import known
from tailtap.records.evaluation import Counts
from tests.simulation.frames import BRIDGE, HOST, SERVER, ethernet, ip, udp

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


def forwarded(number: int, hops: int = 64, *, source: str = HOST, target: str = SERVER) -> bytes:
    return ip(source, target, number, 17, udp(BRIDGE, 0, b"the same"), hops)


def with_others(
    folder: Path, others: Packets, *, routes: bool, left: Packets | None = None
) -> Evaluation:
    """200 packets through a device, and others among them that come to it."""
    sent = [(START + GAP * number, number) for number in range(200)]
    before = [(time, ethernet("host", "router", forwarded(number))) for time, number in sent]
    ends, hops = (("router behind", "server"), 63) if routes else (("host", "router"), 64)
    after = [(time + 7_000, ethernet(*ends, forwarded(number, hops))) for time, number in sent]
    return plain(folder, sorted(before + others), sorted(after + (left or [])))


def at(*frames: bytes) -> Packets:
    return [(START + 1_000 * MS + 3 * MS * place, data) for place, data in enumerate(frames)]


def test_a_bridge_that_forwards_them_loses_what_does_not_leave(tmp_path: Path) -> None:
    frames = [ethernet("host", "0180c200000e", bytes([2, 7, n]), 0x88CC) for n in range(4)]
    found = with_others(tmp_path, at(*frames), routes=False, left=at(*frames[:3]))
    assert fates(found.counts) == {"matched": 203, "lost": 1}


@pytest.mark.parametrize(("behind", "hops"), [("203.0.113.77", 63), (SERVER, 64)])
def test_an_address_that_nothing_shows_to_be_the_routers_is_lost(
    tmp_path: Path, behind: str, hops: int
) -> None:
    """A host behind it, whose own packets are forwarded: all of those for it are lost, or some."""
    dropped = [
        ethernet("host", "router", forwarded(1_000 + number, target=behind)) for number in range(5)
    ]
    answer = ethernet("router", "host", forwarded(7, hops, source=behind, target=HOST))
    found = with_others(tmp_path, at(*dropped, answer), routes=True)
    assert fates(found.counts) == {"matched": 200, "lost": 5, "not_forwarded": 1}
