"""Segments of TCP that a device merges or cuts are found again by their bytes.

scapy makes the packets; what each took follows from which bytes are where, byte by byte.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw
from scapy.utils import wrpcap

from tailtap.analysis.evaluation import evaluate

STREAMS = 20
"""How many random pairs of captures there are: by hand, give another number."""
FIRST_S = 1_700_000_000
CONTENT = bytes(range(256)) * 40


class Piece(NamedTuple):
    """Bytes of a stream in one packet, and when it was captured."""

    flow: int
    start: int
    end: int
    us: int


def packet(piece: Piece, first: int, ident: int) -> Packet:
    header = IP(src=f"10.0.0.{piece.flow + 1}", dst="192.0.2.9", id=ident, ttl=64)
    tcp = TCP(sport=40_000 + piece.flow, dport=443, seq=(first + piece.start) % 2**32, flags="A")
    link = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
    made = link / header / tcp / Raw(CONTENT[piece.start : piece.end])
    made.time = FIRST_S + piece.us / 1_000_000
    return made


def write(path: Path, pieces: Iterable[Piece], first: int, least: int) -> None:
    in_order = sorted(pieces, key=lambda piece: piece.us)
    wrpcap(str(path), [packet(piece, first, least + i) for i, piece in enumerate(in_order)])


def cut(flow: int, draw: random.Random, longest: int) -> list[Piece]:
    """A stream in pieces, without times."""
    found, at = [], 0
    while at < len(CONTENT):
        end = min(at + draw.randint(1, longest), len(CONTENT))
        found.append(Piece(flow, at, end, 0))
        at = end
    return found


@pytest.mark.parametrize("seed", range(STREAMS))
def test_packets_are_found_however_streams_were_cut(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    longest = draw.choice([(300, 300), (300, 2000), (2000, 300)])
    first = draw.choice([5, 2**32 - 3000])
    before: list[Piece] = []
    after: list[Piece] = []
    truth: list[int] = []
    for flow in range(3):
        us = draw.randrange(50)
        came: list[Piece] = []
        for piece in cut(flow, draw, longest[0]):
            us += draw.randint(10, 60)
            came.append(piece._replace(us=us))
        left: list[Piece] = []
        earliest = 0
        for piece in cut(flow, draw, longest[1]):
            # It leaves when its last byte has come, and not before the one before it.
            last = next(one.us for one in came if one.end >= piece.end)
            earliest = max(last, earliest) + draw.randint(3, 20)
            left.append(piece._replace(us=earliest))
        truth += [next(one.us for one in left if one.end >= piece.end) - piece.us for piece in came]
        before += came
        after += left
    write(tmp_path / "before.pcap", before, first, 1)
    write(tmp_path / "after.pcap", after, first, 20_000)
    found = evaluate(tmp_path / "before.pcap", tmp_path / "after.pcap", key="packet-stream")
    counts = found.counts
    assert (counts.matched, counts.lost) == (len(before), 0)
    values, numbers = found.distribution
    assert sorted(truth) == [
        round(ns / 1000) for ns, many in zip(values, numbers, strict=True) for _ in range(many)
    ]
    # A piece after the device is the last of some packet, or one of its others.
    ends = {(piece.flow, piece.end) for piece in before}
    ended = {
        (piece.flow, piece.start)
        for piece in after
        if any((piece.flow, at) in ends for at in range(piece.start + 1, piece.end + 1))
    }
    assert counts.parts_egress == len(after) - len(ended)
    assert counts.unmatched_egress == counts.duplicate_egress == 0


def merged(count: int) -> tuple[list[Piece], list[Piece]]:
    """Segments of 100 bytes, and pairs of them behind a device that takes 15 us for the second."""
    before = [Piece(0, 100 * i, 100 * i + 100, 40 * (i // 2) + 5 * (i % 2)) for i in range(count)]
    after = [
        Piece(0, one.start, two.end, two.us + 15)
        for one, two in zip(before[::2], before[1::2], strict=True)
    ]
    return before, after


def test_merged_segments_are_found_without_an_option(tmp_path: Path) -> None:
    before, after = merged(100)
    write(tmp_path / "before.pcap", before, 1, 1)
    write(tmp_path / "after.pcap", after, 1, 1)
    found = evaluate(tmp_path / "before.pcap", tmp_path / "after.pcap")
    assert found.key == "packet-stream"
    assert (found.counts.matched, found.counts.lost, found.counts.merged_ingress) == (100, 0, 100)
    assert [round(ns / 1000) for ns in found.distribution[0]] == [15, 20]
    assert found.device is not None
    change = next(change for change in found.device.changes if change.what == "segments")
    assert (change.before, change.after, change.packets) == ("apart", "merged", 100)


def test_of_lost_bytes_both_packets_are_lost(tmp_path: Path) -> None:
    before, after = merged(100)
    write(tmp_path / "before.pcap", before, 1, 1)
    write(tmp_path / "after.pcap", after[:20] + after[21:], 1, 1)
    found = evaluate(tmp_path / "before.pcap", tmp_path / "after.pcap")
    assert (found.counts.matched, found.counts.lost) == (98, 2)
    assert found.lost_packets.position.tolist() == [40, 41]
    assert found.lost_packets.burst.tolist() == [2, 2]


def test_a_segment_that_was_sent_again_is_left_out(tmp_path: Path) -> None:
    before, after = merged(100)
    again = before[10]._replace(us=before[10].us + 3)
    write(tmp_path / "before.pcap", [*before, again], 1, 1)
    write(tmp_path / "after.pcap", after, 1, 1)
    found = evaluate(tmp_path / "before.pcap", tmp_path / "after.pcap", key="packet-stream")
    assert (found.counts.matched, found.counts.lost, found.counts.duplicate_ingress) == (99, 0, 2)
    assert any(warning.code == "duplicate-ingress" for warning in found.warnings)
