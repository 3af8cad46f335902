"""Packets that a device or an offload merged, cut or fragmented between two captures: each is found
where its last byte left, and all add up.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from captures import pcap

from tailtap.analysis.evaluation import Evaluation, evaluate
from tests.simulation.draw import Draw
from tests.simulation.frames import HOST, PUBLIC, SERVER, ethernet, ip
from tests.simulation.traffic import START_NS
from tests.simulation.trial import Trial

UNIT, STEP_NS, FEW = 40, 4_096, 40
"""Streams are cut at multiples of so many bytes. Packets of a flow are so far apart at least. Of
fewer packets nobody knows which key follows them."""
MTU, MORE_FRAGMENTS = 1_480, 0x2000
"""Of a fragment's bytes, and its flag."""


class Piece(NamedTuple):
    """Bytes of a flow in one packet, and when it was captured."""

    at: int
    flow: int
    start: int
    end: int


class Passed(NamedTuple):
    """Packets before a device and behind it."""

    before: list[Piece]
    behind: list[Piece]
    ended: dict[int, Piece]
    """Of each packet that left, by when it came: in what its last byte did."""


def streams(draw: Draw, way: str, *, tcp: bool) -> Passed:
    """Each flow's bytes, cut in one way before the device and in another behind it."""
    random = draw.stream("streams")
    number = draw.count("packets of a flow", 3, 300)
    size = UNIT * number * draw.between("units", 1, 30)
    drops = 0.05 * (way != "cut anew" and draw.has("drops", 0.4))
    made = Passed([], [], {})
    for flow in range(draw.between("flows", 1, 4)):
        fine, anew = (
            np.unique(np.append(UNIT * random.integers(1, size // UNIT + 1, number), size))
            for _ in range(2)
        )
        few = np.unique(np.append(fine[random.random(fine.size) < 0.3], size))
        ours, theirs = {"merged": (fine, few), "cut": (few, fine), "cut anew": (fine, anew)}[way]
        came = START_NS + STEP_NS * random.integers(1, 9, ours.size).cumsum() + flow
        # Each leaves when its last byte has come, and not before the one before it.
        due = came[np.searchsorted(ours, theirs)] + random.integers(9, STEP_NS, theirs.size)
        left = np.maximum.accumulate(due) + 4 * np.arange(theirs.size) + flow % 4
        gone = random.random(theirs.size) < drops
        if way == "cut" and not tcp:  # the first piece alone shows that the bytes are the next ones
            gone[np.searchsorted(theirs, np.append(0, ours[:-1]), "right")] = False
        pieces = [
            [Piece(*one) for one in zip(at.tolist(), [flow] * at.size, [0, *ends[:-1].tolist()],
                                        ends.tolist(), strict=True)]
            for at, ends in ((came, ours), (left, theirs))
        ]  # fmt: skip
        for one in pieces[0]:
            first, last = (
                np.searchsorted(theirs, one.start, "right"),
                np.searchsorted(theirs, one.end),
            )
            if not gone[first : last + 1].any():
                made.ended[one.at] = pieces[1][last]
        made.before.extend(pieces[0])
        made.behind.extend(one for one, lost in zip(pieces[1], gone, strict=True) if not lost)
    return made


def written(folder: Path, name: str, packets: Iterable[tuple[int, bytes]]) -> Path:
    """A capture of packets of IP, by when they came."""
    framed = [(at, ethernet("host", "router", packet)) for at, packet in sorted(packets)]
    (folder / name).write_bytes(pcap(framed))
    return folder / name


def run(draw: Draw, folder: Path) -> None:
    """Segments of TCP, also through a proxy, and datagrams of UDP."""
    tcp = draw.has("tcp", 0.6)
    proxy = tcp and draw.has("proxy", 0.2)
    ways = "merged", "cut", *["cut anew"] * tcp
    way = "cut anew" if proxy else draw.choice("way", ways)
    made = streams(draw, way, tcp=tcp)
    again = tcp and not proxy and draw.has("sent again", 0.2)
    if again:
        one = made.before[draw.between("sent again", 0, len(made.before) - 1)]
        later = 7 + STEP_NS * draw.between("sent again", 8, 80)
        made.before.append(one._replace(at=one.at + later))
        made.ended.pop(one.at, None)  # of two nobody knows which of them left
    first = draw.choice("first number", (5, 2**32 - 3_000))
    random = draw.stream("bytes")
    content = [random.bytes(UNIT * 30 * 300) for _ in range(4)]

    def packet(one: Piece, source: str, first: int) -> tuple[int, bytes]:
        payload, ports = content[one.flow][one.start : one.end], (40_000 + one.flow, 443)
        head = struct.pack(">HHHH", *ports, 8 + len(payload), 0)
        if tcp:
            number = (first + one.start) % 2**32
            head = struct.pack(">HHIIBBHHH", *ports, number, 7, 0x50, 0x10, 9_000, 0, 0)
        return one.at, ip(source, SERVER, one.at // 8 % 2**16, 6 if tcp else 17, head + payload)

    behind = (PUBLIC, first + 999) if proxy else (HOST, first)
    before_path = written(folder, "before", [packet(one, HOST, first) for one in made.before])
    behind_path = written(folder, "behind", [packet(one, *behind) for one in made.behind])
    if not made.ended:
        return
    few = min(len(made.before), len(made.behind), len(made.ended)) < FEW
    key = "packet-bytes" if proxy else "packet-stream"
    named = few or (way == "cut anew" and not proxy) or draw.has("key", 0.3)
    found = evaluate(before_path, behind_path, key=key if named else "auto", throughout=True)
    assert found.key == key
    told = "carries" if proxy else "segments" if tcp else "datagrams"
    assert named or told in str(found.key_reason)
    _check(found, made, 2 * again)


def _check(found: Evaluation, made: Passed, again: int) -> None:
    """Each packet that left took so long, the others are lost, and all packets are counted once."""
    took = {at: left.at - at for at, left in made.ended.items()}
    assert {packet.ingress_ns: packet.latency for packet in found.worst()} == took
    counts, carried = found.counts, Counter(made.ended.values())
    merged = sum(many for many in carried.values() if many > 1)
    assert (counts.ingress, counts.egress) == (len(made.before), len(made.behind))
    assert (counts.matched, counts.merged_ingress) == (len(took), merged)
    assert counts.lost == len(made.before) - len(took) - again
    left = Counter((one.flow, one.start) for one in made.before)
    lost = [
        place
        for place, one in enumerate(sorted(made.before))
        if one.at not in took and left[one.flow, one.start] == 1
    ]
    assert found.lost_packets.position.tolist() == lost
    assert counts.parts_egress + counts.unmatched_egress == len(made.behind) - len(carried)
    others = counts.duplicate_egress, counts.noncausal, counts.outside_ingress
    assert (counts.duplicate_ingress, *others) == (again, 0, 0, 0)
    changes = found.device.changes if found.device else []
    told = {(one.before, one.after): one.packets for one in changes if one.what == "packets"}
    assert not found.device or told.get(("apart", "merged"), 0) == merged


def fragments(draw: Draw, folder: Path) -> None:
    """Datagrams that came whole or in fragments: of what the device cut, the first fragment has a
    key; of what came so, each has one.
    """
    random = draw.stream("fragments")
    number, whole = draw.count("datagrams", 40, 400), draw.has("cut by the device", 0.5)
    before, behind = [], []
    took: dict[int, int] = {}
    for datagram in range(number):
        at = START_NS + STEP_NS * 16 * datagram
        size = int(random.choice((100, 1_000, 4_000)))
        carried = struct.pack(">HHHH", 9, 53, 8 + size, 0) + random.bytes(size)
        cuts = [(start, carried[start : start + MTU]) for start in range(0, len(carried), MTU)]
        parts = [
            ip(HOST, SERVER, datagram, 17, part, fragment=start // 8 | MORE_FRAGMENTS * more)
            for start, part in cuts
            for more in [start + MTU < len(carried)]
        ]
        came = [ip(HOST, SERVER, datagram, 17, carried)] if whole else parts
        before += [(at + 8 * place, one) for place, one in enumerate(came)]
        if random.random() < 0.1:
            continue
        later = int(random.integers(100, STEP_NS))
        behind += [(at + later + 8 * place, one) for place, one in enumerate(parts)]
        took |= {at + 8 * place: later for place in range(len(came))}
    found = evaluate(written(folder, "before", before), written(folder, "behind", behind))
    assert {packet.ingress_ns: packet.latency for packet in found.worst()} == took
    counts = found.counts
    assert (counts.ingress, counts.matched) == (len(before), len(took))
    assert counts.lost + counts.outside_ingress == len(before) - len(took)
    assert counts.egress + counts.unkeyed_egress == len(behind)
    assert counts.unkeyed_egress == len(behind) - len(took)
    assert found.key == ("packet-id" if whole else "packet")


TRIAL = Trial("segments", run, every=2)
FRAGMENTS = Trial("fragments", fragments, every=10)
