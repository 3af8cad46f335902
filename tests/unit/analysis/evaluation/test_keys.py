"""Keys: numbers at a place, frames of many protocols, and hashes in files of marks."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from captures import pcap
from marks import RECORD, write_marks
from protocols import REFUSED, frames, kinds
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt
from scapy.layers.ipsec import ESP
from scapy.layers.l2 import Dot1Q, Ether
from scapy.layers.rtp import RTP
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet, Raw

from tailtap.analysis.evaluation import Evaluation, evaluate
from tailtap.analysis.evaluation.clocks import aligned
from tailtap.analysis.evaluation.evaluate import of_evaluation
from tailtap.analysis.evaluation.many import plan
from tailtap.base.errors import InputError

PACKETS, STEP_NS, TOOK_NS = 200, 40_000, 7_000
START_NS = 1_000_000_000_000


def number(n: int) -> int:
    return 0x01020300 + n


def on_the_wire(packet: Packet) -> Packet:
    return Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / packet


def bare(carried: Packet) -> Packet:
    return on_the_wire(IP(src="10.0.0.1", dst="10.0.0.2", id=5) / carried)


def wrapped(frame: Packet) -> Packet:
    """The same in a tunnel behind a tag."""
    outer = IP(src="203.0.113.1", dst="203.0.113.2", id=9) / UDP(sport=4000, dport=4789)
    return on_the_wire(Dot1Q(vlan=9) / outer / VXLAN(vni=3) / frame)


def captured(
    path: Path, frames: Callable[[int], Packet], after_ns: int = 0, snap: int = 65535
) -> Path:
    rows = [(START_NS + STEP_NS * n + after_ns, bytes(frames(n))) for n in range(PACKETS)]
    path.write_bytes(pcap(rows, snap=snap))
    return path


def pair(
    folder: Path, before: Callable[[int], Packet], after: Callable[[int], Packet]
) -> tuple[Path, Path]:
    return captured(folder / "in", before), captured(folder / "out", after, TOOK_NS)


def require_all(found: Evaluation) -> None:
    counts = found.counts
    assert (counts.matched, counts.lost, counts.unmatched_egress) == (PACKETS, 0, 0)
    assert found.min == found.max == TOOK_NS


OTHERS = 3
"""What is the same in all packets."""
SENT: dict[str, Callable[[int], Packet]] = {
    "ip.id": lambda n: on_the_wire(IP(dst="10.0.0.2", id=n + 1) / UDP() / Raw(b"same")),
    "tcp.seq": lambda n: bare(TCP(seq=number(n), ack=OTHERS)),
    "tcp.ack": lambda n: bare(TCP(seq=OTHERS, ack=number(n), options=[("MSS", 1460)])),
    "tcp.payload+2:4:be": lambda n: bare(
        TCP(options=[("Timestamp", (1, 2))]) / Raw(struct.pack(">HI", 7, number(n)))
    ),
    "udp.srcport": lambda n: bare(UDP(sport=1024 + n, dport=9)),
    "udp.payload+0:4:le": lambda n: bare(UDP() / Raw(struct.pack("<I", number(n)))),
    "udp+8:4:le": lambda n: bare(UDP() / Raw(struct.pack("<I", number(n)))),
    "icmp.seq": lambda n: bare(ICMP(id=OTHERS, seq=n)),
    "rtp.seq": lambda n: bare(UDP(sport=5004, dport=5004) / RTP(sequence=n) / Raw(bytes(20))),
    "rtp.timestamp": lambda n: bare(UDP(dport=5004) / RTP(timestamp=number(n)) / Raw(bytes(20))),
    "dns.id": lambda n: bare(UDP(dport=53) / Raw(struct.pack(">H", n) + bytes(10))),
    "esp.seq": lambda n: bare(ESP(spi=1, seq=number(n), data=bytes(20))),
    "payload+4:2:be": lambda n: on_the_wire(
        IPv6(dst="2001:db8::1") / IPv6ExtHdrDestOpt() / UDP() / Raw(struct.pack(">IH", 0, n))
    ),
    "-12:4:le": lambda n: bare(
        UDP() / Raw(bytes([0, 300, 900][n % 3]) + struct.pack("<I", number(n)) + bytes(8))
    ),
}


@pytest.mark.parametrize("key", sorted(SENT))
def test_a_number_is_found_behind_a_tunnel_as_well(key: str, tmp_path: Path) -> None:
    sent = SENT[key]
    padding = random.Random(1).randbytes(30)
    paths = pair(tmp_path, sent, lambda n: Raw(bytes(wrapped(sent(n))) + padding))
    found = evaluate(*paths, key=key)
    assert (found.key, found.key_after) == (key, None)
    require_all(found)


def test_a_number_may_be_elsewhere_behind_the_device(tmp_path: Path) -> None:
    """In another order of bytes, too; nothing else of the packet stays."""
    paths = pair(
        tmp_path,
        lambda n: bare(UDP() / Raw(struct.pack("<I", number(n)) + bytes(8))),
        lambda n: bare(TCP(seq=n) / Raw(bytes(n % 40) + struct.pack(">I", number(n)))),
    )
    found = evaluate(*paths, key="udp.payload+0:4:le", key_after="-4:4:be")
    require_all(found)
    assert (found.key, found.key_after) == ("udp.payload+0:4:le", "-4:4:be")
    assert found.worst(1)[0].key == str(number(0))
    found.write(tmp_path / "kept")
    kept = Evaluation.load(tmp_path / "kept")
    assert (kept.key, kept.key_after) == (found.key, found.key_after)
    again = of_evaluation(kept)
    assert (again.key, again.key_after) == (found.key, found.key_after)
    assert len(plan(*paths, again, 2_000)) > 1
    with pytest.raises(InputError, match=r"no packet carries the key 'udp.payload\+0:4:le'"):
        evaluate(paths[1], paths[1], key="udp.payload+0:4:le")


def test_two_clocks_are_aligned_by_a_number_on_each_side(tmp_path: Path) -> None:
    """Packets that went back have the number where each side has it."""
    ahead_ns = 1_000_000

    def near(n: int) -> Packet:
        return bare(UDP() / Raw(struct.pack("<I", number(n))))

    def far(n: int) -> Packet:
        return bare(UDP() / Raw(struct.pack(">HI", 0, number(n))))

    before = captured(tmp_path / "in", near)
    after = captured(tmp_path / "out", far, TOOK_NS + ahead_ns)
    back = (
        captured(tmp_path / "back-in", far, 1_000 + ahead_ns),
        captured(tmp_path / "back-out", near, 1_000 + TOOK_NS),
    )
    key, key_after = "udp.payload+0:4:le", "udp.payload+2:4:be"
    clocks = aligned(before, after, back, key=key, key_after=key_after)
    least, most = clocks.record.ahead_ns[0]
    assert ahead_ns - TOOK_NS - 100 < least <= ahead_ns - TOOK_NS
    assert ahead_ns + TOOK_NS <= most < ahead_ns + TOOK_NS + 100
    found = evaluate(before, after, clocks=clocks, key=key, key_after=key_after)
    assert found.counts.matched == PACKETS and abs(found.max - TOOK_NS) < 100


def test_padding_is_no_number(tmp_path: Path) -> None:
    """Every second packet is too short for it, and padded with zeros."""

    def sent(n: int) -> Packet:
        content = struct.pack("<I", number(n)) if n % 2 else b""
        return Raw(bytes(bare(UDP() / Raw(content))).ljust(60, b"\0"))

    found = evaluate(*pair(tmp_path, sent, sent), key="udp.payload+0:4:le")
    assert (found.counts.matched, found.counts.unkeyed_ingress) == (PACKETS // 2, PACKETS // 2)
    assert found.inputs.ingress.unread == {"foreign": PACKETS // 2}


def test_a_number_that_was_cut_off_is_short(tmp_path: Path) -> None:
    sent = SENT["-12:4:le"]
    whole = captured(tmp_path / "in", sent)
    found = evaluate(whole, captured(tmp_path / "out", sent, TOOK_NS, snap=200), key="-12:4:le")
    few = -(-PACKETS // 3)
    assert (found.counts.matched, found.inputs.egress.unread) == (few, {"short": PACKETS - few})


@pytest.mark.parametrize(
    ("key", "key_after", "said"),
    [
        ("udq+0:4:le", None, r"no place 'udq'; give frame, ip, ipv4, udp, tcp"),
        ("udp.payload", None, r"PLACE\+OFFSET:WIDTH:le\|be from that of a header"),
        ("-2:4:le", None, "of 4 bytes, 2 at most are before the packet's end"),
        ("42:4:le", "42:2:le", "has 4 bytes, and that after it, '42:2:le', has 2"),
        ("packet", "42:2:le", "'packet' is none"),
        ("auto", "42:2:le", "--key-after 42:2:le says where a number is behind the device"),
        ("42:2:le", "nowhere", "'nowhere' is not a key"),
    ],
)
def test_what_is_no_key_is_explained(
    key: str, key_after: str | None, said: str, tmp_path: Path
) -> None:
    paths = pair(tmp_path, SENT["ip.id"], SENT["ip.id"])
    with pytest.raises(InputError, match=said):
        evaluate(*paths, key=key, key_after=key_after)


EACH = 5
LEAST_NS = 7_000
FRAMES = list(frames(EACH))


def tagged(frame: bytes) -> bytes:
    return frame[:12] + b"\x81\x00\xe0\x07" + frame[12:]


@pytest.mark.parametrize("device", [bytes, tagged])
def test_frames_of_all_protocols_are_found_again(
    device: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    """Each took a time of its own: one that is taken for another shows."""
    assert len(FRAMES) > 500
    before, after, took = [], [], {}
    for place, (name, data) in enumerate(FRAMES):
        entered, latency = START_NS + 10_000 * place, LEAST_NS + 3 * place
        before.append((entered, data))
        after.append((entered + latency, device(data)))
        if name not in REFUSED:
            took[entered] = latency
    for path, rows in (("in", before), ("out", after)):
        (tmp_path / path).write_bytes(pcap(rows))
    found = evaluate(tmp_path / "in", tmp_path / "out")
    assert found.key == "packet"
    assert {packet.ingress_ns: packet.latency for packet in found.worst()} == took
    refused = EACH * len(REFUSED)
    assert found.counts.matched == EACH * len(kinds()) == len(FRAMES) - refused
    assert found.counts.unkeyed_ingress == found.counts.unkeyed_egress == refused
    for side in found.inputs.both:
        assert side.unread == {"foreign": refused}


MARKS = 20_000
GAP_NS = 10_000
SECOND = 1_000_000_000
LATER_NS = 3_000_000


def marked() -> np.ndarray:
    """Packets one after the other, each with a key and a level of its own, as of a hash."""
    records = np.zeros(MARKS, RECORD)
    records["time"] = SECOND + np.arange(MARKS) * GAP_NS
    records["key"] = np.random.default_rng(7).integers(0, 2**63, MARKS, dtype=np.uint64)
    records["len"] = 60 + np.arange(MARKS) % 1400
    # Half of all are of level 0, a quarter of level 1, ...
    records["level"] = np.minimum(np.random.default_rng(8).geometric(0.5, MARKS) - 1, 16)
    return records


def test_the_thinner_of_two_samples_counts(tmp_path: Path) -> None:
    records = marked()
    write_marks(tmp_path / "in.marks", records[records["level"] >= 2], samples=((0, 2),))
    thin = records[records["level"] >= 4]
    thin["time"] += np.uint64(700)
    write_marks(tmp_path / "out.marks", thin, samples=((0, 4),))
    found = evaluate(tmp_path / "in.marks", tmp_path / "out.marks", throughout=True)
    counts = found.counts
    assert (counts.matched, counts.lost, counts.unmatched_egress) == (len(thin), 0, 0)
    sampled = [one.message for one in found.warnings if one.code == "sampled"]
    assert len(sampled) == 2
    assert "were left out, as the other side has a thinner sample" in sampled[0]


@pytest.mark.parametrize(("first", "second"), [(0, 3), (3, 0)])
def test_packets_under_way_while_the_sample_changes_are_not_lost(
    first: int, second: int, tmp_path: Path
) -> None:
    """Thinner before the device first and behind it later; denser behind it first."""
    records = marked()
    latency = np.random.default_rng(3).integers(1_000, LATER_NS, MARKS)
    change = SECOND + MARKS // 2 * GAP_NS
    before = records["time"] < np.uint64(change)
    chosen = records["level"] >= np.where(before, first, second)
    behind = records.copy()
    behind["time"] += latency.astype(np.uint64)
    # A real tap takes five seconds; the last packets are behind the device long before.
    until = change + 5 * SECOND if second > first else change
    level = np.where(behind["time"] < np.uint64(until), first, second)
    passed = np.sort(behind[behind["level"] >= level], order="time")
    samples = ((0, first), (change, second))
    write_marks(tmp_path / "in.marks", records[chosen], samples=samples)
    write_marks(tmp_path / "out.marks", passed, samples=samples)
    counts = evaluate(tmp_path / "in.marks", tmp_path / "out.marks", throughout=True).counts
    assert (counts.lost, counts.unmatched_egress) == (0, 0)
    assert counts.matched == np.count_nonzero(chosen)
    assert counts.trimmed_egress == len(passed) - counts.matched > 0
