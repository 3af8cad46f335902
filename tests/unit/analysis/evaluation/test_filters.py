"""Captures through a filter of libpcap's: libpcap itself says which packets it takes."""

from __future__ import annotations

import ctypes.util
import random
from pathlib import Path

import pytest
from captures import pcap, stamps
from packet_filters import matching
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Packet, Raw

from tailtap.analysis.evaluation.evaluate import evaluate
from tailtap.base.errors import InputError

pytestmark = pytest.mark.skipif(
    ctypes.util.find_library("pcap") is None, reason="filters need libpcap"
)
START, LATENCY, RAW_IP = 1_700_000_000_000_000_000, 30_000, 101
FILTERS = (
    "udp port 53", "tcp", "net 10.1.0.0/16 and not port 80", "ip6 and udp", "vlan 7 and udp",
    "icmp or arp", "greater 200", "ip[8] > 60 and udp[4:2] >= 40", "tcp[tcpflags] & tcp-syn != 0",
    "src host 10.1.0.3 or dst portrange 4000-5000", "ether host 02:00:00:00:00:01",
    "ip[2:2] * 3 - (ip[0] & 0xf) << 2 > 500", "(ip[2:2] % 7 ^ 3) / 2 = 1",
)  # fmt: skip


def layers(rng: random.Random, number: int) -> Packet:
    """A packet of one of many kinds."""
    ends = {"src": f"10.{rng.randrange(3)}.0.{rng.randrange(5)}", "dst": "10.1.0.9"}
    network = IP(**ends, id=number, ttl=rng.choice([60, 61, 64]))
    ports = {"sport": rng.randrange(1024, 9000), "dport": rng.choice([53, 80, 4500])}
    filling = Raw(number.to_bytes(4, "big") + bytes(rng.randrange(300)))
    match rng.randrange(6):
        case 0:
            return network / TCP(**ports, flags=rng.choice(["S", "A"])) / filling
        case 1:
            return IPv6(dst="fd00::1") / UDP(**ports) / filling
        case 2:
            return network / ICMP(seq=number) / filling
        case _:
            return network / UDP(**ports) / filling


@pytest.fixture(scope="module")
def frames() -> list[bytes]:
    """Packets within frames, some of them with a tag or without IP."""
    rng = random.Random(3)
    found = []
    for number in range(400):
        ether = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
        packet = ARP(hwsrc=f"02:00:00:00:{number // 256:02x}:{number % 256:02x}", pdst="10.0.0.1")
        if number % 20:
            packet = layers(rng, number)
        found.append(bytes(ether / Dot1Q(vlan=7) / packet if number % 9 == 0 else ether / packet))
    return found


def captured(folder: Path, packets: list[bytes], linktype: int = 1) -> tuple[Path, Path]:
    """The packets before a device and after it."""
    sides = folder / "in.pcap", folder / "out.pcap"
    for side, late in zip(sides, (0, LATENCY), strict=True):
        timed = ((START + i * 100_000 + late, packet) for i, packet in enumerate(packets))
        side.write_bytes(pcap(timed, linktype=linktype))
    return sides


@pytest.mark.parametrize("words", FILTERS)
def test_what_libpcap_takes_is_evaluated(tmp_path: Path, frames: list[bytes], words: str) -> None:
    taken = matching(words, frames)
    assert 0 < sum(taken) <= len(frames)
    found = evaluate(*captured(tmp_path, frames), filter=words)
    assert (found.counts.matched, found.counts.lost) == (sum(taken), 0)
    side = found.inputs.ingress
    assert (side.chosen, side.others) == (f"filter '{words}'", len(frames) - sum(taken))


def test_packets_without_an_ethernet_header_are_filtered_alike(tmp_path: Path) -> None:
    rng = random.Random(4)
    packets = [bytes(layers(rng, number)) for number in range(200)]
    ethertypes = [b"\x08\0" if packet[0] >> 4 == 4 else b"\x86\xdd" for packet in packets]
    framed = [bytes(12) + one + packet for one, packet in zip(ethertypes, packets, strict=True)]
    pair = captured(tmp_path, packets, RAW_IP)
    for words in ("udp port 53", "ip6", "less 100"):
        assert evaluate(*pair, filter=words).counts.matched == sum(matching(words, framed))


def test_behind_a_nat_a_filter_of_its_own_counts(tmp_path: Path) -> None:
    pair = tmp_path / "in.pcap", tmp_path / "out.pcap"
    for side, source in zip(pair, ("10.0.0", "192.0.2"), strict=True):
        late = LATENCY * (side == pair[1])
        rows = []
        for i in range(300):
            host = f"{source}.{1 + i % 3}"
            packet = Ether() / IP(src=host, dst="10.1.0.1", id=i) / UDP(dport=53) / Raw(bytes(20))
            rows.append((START + i * 100_000 + late, bytes(packet)))
        side.write_bytes(pcap(rows))
    words = "src host 10.0.0.2"
    found = evaluate(*pair, filter=words, filter_after="src host 192.0.2.2")
    assert (found.counts.matched, found.counts.unmatched_egress) == (100, 0)
    found = evaluate(*pair, filter=words, filter_after="")
    counts = found.counts
    assert (counts.matched, counts.unmatched_egress + counts.outside_egress) == (100, 200)
    with pytest.raises(InputError, match=r"out.pcap: no packet of the capture is of filter 'src"):
        evaluate(*pair, filter=words)


def test_what_a_filter_cannot_read_is_refused(tmp_path: Path, frames: list[bytes]) -> None:
    pair = captured(tmp_path, frames)
    with pytest.raises(InputError, match=r"filter 'udp prot 5': .*syntax error"):
        evaluate(*pair, filter="udp prot 5")
    with pytest.raises(InputError, match=r"--filter-after is of the second capture"):
        evaluate(pair[0], filter="udp", filter_after="udp")
    ids = tmp_path / "in.stamps"
    ids.write_bytes(stamps([(START, 1)]))
    with pytest.raises(InputError, match=r"in.stamps: it holds no frames, which a filter reads"):
        evaluate(ids, ids, filter="udp")
