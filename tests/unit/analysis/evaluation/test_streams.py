"""Segments of TCP that a device merges or cuts are found again by their bytes.

scapy makes the packets; what each took follows from which bytes are where, byte by byte.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest
from pairs import latencies, said
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw
from scapy.utils import wrpcap

from tailtap.analysis.evaluation import Evaluation, evaluate

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


def segments(pieces: Iterable[Piece], first: int = 1, least: int = 1) -> list[Packet]:
    """What TCP carries, in the order of time."""
    in_order = sorted(pieces, key=lambda piece: piece.us)
    return [packet(piece, first, least + place) for place, piece in enumerate(in_order)]


def evaluated(
    folder: Path, before: Iterable[Packet], after: Iterable[Packet], key: str = "auto"
) -> Evaluation:
    for name, side in (("before", before), ("after", after)):
        wrpcap(str(folder / name), sorted(side, key=lambda one: one.time))
    return evaluate(folder / "before", folder / "after", key=key)


def took_us(found: Evaluation) -> list[int]:
    return [round(ns / 1000) for ns in latencies(found)]


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
    sides = segments(before, first), segments(after, first, 20_000)
    found = evaluated(tmp_path, *sides, key="packet-stream")
    counts = found.counts
    assert (counts.matched, counts.lost) == (len(before), 0)
    assert took_us(found) == sorted(truth)
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
    found = evaluated(tmp_path, segments(before), segments(after))
    assert found.key == "packet-stream"
    assert (found.counts.matched, found.counts.lost, found.counts.merged_ingress) == (100, 0, 100)
    assert took_us(found) == [15] * 50 + [20] * 50
    assert found.device is not None
    change = next(change for change in found.device.changes if change.what == "packets")
    assert (change.before, change.after, change.packets) == ("apart", "merged", 100)
    # Of lost bytes both packets are lost.
    found = evaluated(tmp_path, segments(before), segments(after[:20] + after[21:]))
    assert (found.counts.matched, found.counts.lost) == (98, 2)
    assert found.lost_packets.position.tolist() == [40, 41]
    assert found.lost_packets.burst.tolist() == [2, 2]
    # A segment that was sent again is left out.
    again = before[10]._replace(us=before[10].us + 3)
    found = evaluated(tmp_path, segments([*before, again]), segments(after), key="packet-stream")
    assert (found.counts.matched, found.counts.lost, found.counts.duplicate_ingress) == (99, 0, 2)
    assert "duplicate-ingress" in said(found)


BYTES = [random.Random(flow).randbytes(48_000) for flow in range(3)]


def datagrams(pieces: Iterable[Piece], addresses: str = "10.0.0.{}") -> list[Packet]:
    """What UDP carries of random bytes."""
    made = []
    for number, piece in enumerate(pieces):
        header = IP(src=addresses.format(piece.flow + 1), dst="192.0.2.9", id=number % 50)
        content = BYTES[piece.flow][piece.start : piece.end]
        link = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
        one = link / header / UDP(sport=40_000 + piece.flow, dport=443) / Raw(content)
        one.time = FIRST_S + piece.us / 1_000_000
        made.append(one)
    return made


def apart(many: int) -> tuple[list[Piece], list[Piece]]:
    """Flows in datagrams of 4,800 bytes, and the same in pieces from 10 us later on."""
    size, one = 4_800, 4_800 // many
    whole = [Piece(f, at, at + size, at + f) for at in range(0, 48_000, size) for f in range(3)]
    pieces = [
        Piece(all_.flow, at, at + one, all_.us + 10 + (at - all_.start) // one)
        for all_ in whole
        for at in range(all_.start, all_.end, one)
    ]
    return whole, pieces


@pytest.mark.parametrize("merges", [False, True])
def test_datagrams_that_were_merged_or_cut_are_found_without_an_option(
    tmp_path: Path, merges: bool
) -> None:
    """As offloads do: the last piece counts, and each that was merged has its own latency."""
    whole, pieces = apart(8)
    pair = (pieces, [one._replace(us=one.us + 20) for one in whole]) if merges else (whole, pieces)
    found = evaluated(tmp_path, datagrams(pair[0]), datagrams(pair[1]))
    counts = found.counts
    assert (found.key, counts.matched, counts.lost) == ("packet-stream", len(pair[0]), 0)
    assert sorted(set(took_us(found))) == ([3, 4, 5, 6, 7, 8, 9, 10] if merges else [17])
    assert (counts.parts_egress, counts.merged_ingress) == ((0, 240) if merges else (210, 0))
    assert found.key_reason is not None and "segments" not in found.key_reason
    assert "datagrams were merged or cut" in found.key_reason


def test_of_lost_pieces_the_datagram_is_lost(tmp_path: Path) -> None:
    whole, pieces = apart(8)
    del pieces[19]  # of the third datagram
    found = evaluated(tmp_path, datagrams(whole), datagrams(pieces))
    assert (found.counts.matched, found.counts.lost) == (29, 1)
    assert found.lost_packets.position.tolist() == [2]


def test_a_proxy_of_tcp_is_followed_by_what_it_carries(tmp_path: Path) -> None:
    """Other addresses, ports and numbers, and cut anew: each leaves with its last byte."""
    draw = random.Random(5)
    before, after, truth = [], [], []
    for flow in range(3):
        us = flow
        came = [piece._replace(us=(us := us + 50)) for piece in cut(flow, draw, 1400)]
        # All of it passes within a moment of the last byte that it needs.
        left = [
            piece._replace(us=next(one.us for one in came if one.end >= piece.end) + 9)
            for piece in cut(flow, draw, 1000)
        ]
        truth += [next(one.us for one in left if one.end >= piece.end) - piece.us for piece in came]
        before += came
        after += left
    sides: list[list[Packet]] = []
    for side, other in ((before, 0), (after, 7)):
        made = datagrams(sorted(side, key=lambda one: one.us), addresses=f"10.0.{other}.{{}}")
        for piece, one in zip(sorted(side, key=lambda one: one.us), made, strict=True):
            ports = {"sport": 30_000 + 5 * other + piece.flow, "dport": 443}
            carried = TCP(**ports, seq=999 * other + piece.start, flags="A") / one[Raw]
            one[IP].remove_payload()
            one[IP].add_payload(carried)
        sides.append(made)
    found = evaluated(tmp_path, sides[0], sides[1])
    assert (found.key, found.counts.matched, found.counts.lost) == ("packet-bytes", len(before), 0)
    assert took_us(found) == sorted(truth)
