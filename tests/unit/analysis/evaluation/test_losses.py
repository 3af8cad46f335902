"""Which packets were lost, and what is claimed of packets that are equal; seeds try the rest."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow.parquet as pq
import pytest
from captures import pcap, stamps
from pairs import said
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from tailtap.analysis.evaluation import Evaluation, Settings
from tailtap.analysis.evaluation.evaluate import evaluate_by
from tailtap.base.errors import InputError

START, STEP, LATENCY = 1_700_000_000_000_000_000, 100_000, 35_000
MOST, COUNT = 1 << 18, 300
Pair: TypeAlias = tuple[Path, Path]


def frame(number: int, payload: bytes | None = None) -> bytes:
    """A packet of one of three flows, of a length of its own."""
    filling = bytes([number % 251]) * (20 + number % 40) if payload is None else payload
    headers = IP(src="10.0.0.1", dst="10.0.1.1", id=number if payload is None else 0)
    ether = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
    port = 1000 + (number % 3 if payload is None else 0)
    return bytes(ether / headers / UDP(sport=port, dport=53) / Raw(filling))


def captures_of(folder: Path, lost: Collection[int]) -> Pair:
    """300 packets before the device, and those behind it that were not lost."""
    left = [number for number in range(COUNT) if number not in lost]
    sides = {"in": [(at(n), n) for n in range(COUNT)], "out": [(at(n) + LATENCY, n) for n in left]}
    for name, packets in sides.items():
        (folder / f"{name}.pcap").write_bytes(pcap((time, frame(n)) for time, n in packets))
    return folder / "in.pcap", folder / "out.pcap"


def at(number: int) -> int:
    return START + number * STEP


def evaluated(pair: Iterable[Path], **settings: Any) -> Evaluation:
    return evaluate_by(Settings(throughout=True, **settings), *pair)


def test_the_first_ones_are_kept_of_many(tmp_path: Path) -> None:
    packets = np.arange(MOST + 1000)
    times = START + packets * 1000
    kept = packets[-500:]
    for name, ids, stamped in (("in", packets, times), ("out", kept, times[kept] + 10)):
        records = list(zip(stamped.tolist(), ids.tolist(), strict=True))
        (tmp_path / f"{name}.stamps").write_bytes(stamps(records))
    found = evaluated((tmp_path / "in.stamps", tmp_path / "out.stamps"))
    assert found.counts.lost == MOST + 500
    assert found.lost_packets.position.tolist() == list(range(MOST))
    assert found.lost_packets.ingress_ns.tolist() == times[:MOST].tolist()


def test_a_burst_of_no_packet_is_refused(tmp_path: Path) -> None:
    evaluated(captures_of(tmp_path, {5})).write(tmp_path / "out")
    path = tmp_path / "out/losses.parquet"
    table = pq.read_table(path)
    pq.write_table(table.set_column(table.column_names.index("burst"), "burst", [[0]]), path)
    with pytest.raises(InputError, match=r"losses\.parquet has a burst without a packet"):
        Evaluation.load(tmp_path / "out")


# Equal packets: nothing in them tells one from another.

EQUAL = frame(0, b"the same")


def equal_pair(folder: Path, packets: Iterable[tuple[int, int | None]]) -> Pair:
    """Captures of equal packets: when each came, and when it left, if it did."""
    came = [(START + time, EQUAL) for time, _ in packets]
    left = sorted((START + time, EQUAL) for _, time in packets if time is not None)
    pair = folder / "in.pcap", folder / "out.pcap"
    pair[0].write_bytes(pcap(came))
    pair[1].write_bytes(pcap(left))
    return pair


def pairs_of(found: Evaluation) -> set[tuple[int, int]]:
    """All pairs that were matched, since the start."""
    return {(one.ingress_ns - START, one.egress_ns - START) for one in found.worst(10**6)}


def test_a_lost_equal_packet_leaves_open_what_was_in_the_device_with_it(tmp_path: Path) -> None:
    groups = 20
    packets = [(group * 100 * STEP + number * STEP, group * 100 * STEP + number * STEP + 4 * STEP)
               for group in range(groups) for number in range(10)]  # fmt: skip
    lost = 73  # of the eighth group
    told = [(came, None if place == lost else left) for place, (came, left) in enumerate(packets)]
    found = evaluated(equal_pair(tmp_path, told), key="packet", window_ns=50 * STEP)
    counts = found.counts
    assert pairs_of(found) == set(packets) - set(packets[70:80])
    assert (counts.matched, counts.matched_in_order) == (190, 190)
    # Ten came and nine left: one is lost, and nobody knows which.
    assert (counts.duplicate_ingress, counts.lost, found.losses()) == (9, 1, [])
    assert counts.unmatched_egress == 9
    assert said(found).keys() >= {"equal-packets", "duplicate-ingress"}
    text = said(found)["duplicate-ingress"]
    assert "9 packets" in text and "a shorter --window" in text


def test_one_equal_packet_alone_in_the_device_is_a_row_when_it_is_lost(tmp_path: Path) -> None:
    # Every 30 steps, so that each shares its key with others within the window, and one far away.
    packets: list[tuple[int, int | None]] = [
        (number * 30 * STEP, number * 30 * STEP + STEP) for number in range(10)
    ]
    later = [(2000 * STEP + came, 2000 * STEP + came + STEP) for came, _ in packets]
    packets = [*packets, (1000 * STEP, None), *later]
    found = evaluated(equal_pair(tmp_path, packets), key="packet", window_ns=50 * STEP)
    assert pairs_of(found) == {pair for pair in packets if pair[1] is not None}
    [lost] = found.losses()
    assert (lost.ingress_ns, lost.position, lost.burst) == (START + 1000 * STEP, 10, 1)
    assert (lost.length, lost.flow) == (len(EQUAL), "udp 10.0.0.1:1000 > 10.0.1.1:53")


def test_equal_packets_of_one_stamp_each_have_their_latency(tmp_path: Path) -> None:
    packets = [(at * STEP, at * STEP + took) for at in range(9) for took in (300, 700)]
    found = evaluated(equal_pair(tmp_path, packets), key="packet", window_ns=STEP, flows=True)
    [flow] = found.flows or []
    assert flow.latency_ns and (flow.latency_ns.min, flow.latency_ns.max) == (300, 700)
