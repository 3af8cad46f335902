"""Sides of several files, of parts of a file, of pipes, and through filters of libpcap's."""

from __future__ import annotations

import ctypes.util
import os
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from threading import Thread

import pytest
from blocks import enhanced, interface, section
from captures import mscap, pcap, pcapng, stamps
from packet_filters import matching
from pairs import latencies, said
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Packet, Raw

from tailtap.analysis.evaluation import Evaluation, evaluate
from tailtap.analysis.evaluation.sources import Source
from tailtap.base.errors import InputError

START, GAP = 1_700_000_000_000_000_000, 50_000
COUNT = 300
Stamped = tuple[int, bytes]
MACS = [f"02:00:00:00:00:0{number}" for number in range(1, 5)]


def packet(number: int, source: str = MACS[0], destination: str = MACS[1], ttl: int = 64) -> Packet:
    ip = IP(src="198.51.100.1", dst="203.0.113.9", id=number, ttl=ttl)
    return Ether(src=source, dst=destination) / ip / UDP(sport=4000, dport=53) / Raw(b"x" * 20)


def took(number: int) -> int:
    """What a packet took, in ns."""
    return 7_000 + 100 * (number % 10)


def passing(
    before: Callable[[int], Packet] = packet, after: Callable[[int], Packet] = packet
) -> tuple[list[Stamped], list[Stamped]]:
    """Packets before a device and behind it."""
    times = [START + number * GAP for number in range(COUNT)]
    return (
        [(time, bytes(before(number))) for number, time in enumerate(times)],
        [(time + took(number), bytes(after(number))) for number, time in enumerate(times)],
    )


def exact(found: Evaluation) -> bool:
    """Whether each packet is matched with what it took."""
    return latencies(found) == sorted(map(took, range(COUNT)))


def ring(folder: Path, packets: Sequence[Stamped], names: Sequence[str]) -> Path:
    """A capture in several files, whose names have another order than their packets."""
    folder.mkdir()
    size = len(packets) // len(names)
    for place, name in enumerate(names):
        part = packets[place * size : None if place == len(names) - 1 else (place + 1) * size]
        (folder / name).write_bytes(pcap(part))
    return folder


def write(path: Path, packets: Iterable[Stamped]) -> Path:
    path.write_bytes(pcap(packets))
    return path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return write(tmp_path / "out.pcap", passing()[1])


def test_a_ring_is_one_capture_in_the_order_of_its_stamps(tmp_path: Path, out: Path) -> None:
    folder = ring(tmp_path / "ring", passing()[0], ["c.pcap2", "c.pcap0", "c.pcap1"])
    write(folder / "c.pcap3", [])  # a file that has only just been begun
    (folder / ".hidden").write_text("no capture")
    found = evaluate(folder, out)
    assert exact(found) and not said(found)
    side = found.inputs.ingress
    assert side.path == str(folder) and side.files is not None
    each = {Path(file.path).name: file.packets for file in side.files}
    counts = [("c.pcap2", 100), ("c.pcap0", 100), ("c.pcap1", 100), ("c.pcap3", 0)]
    assert list(each.items()) == counts
    again = evaluate(f"{folder}/c.pcap[0-2]", out)
    assert exact(again) and again.inputs.ingress.path.endswith("[0-2]")


def test_damage_in_a_file_of_a_ring_is_told_of_that_file(tmp_path: Path, out: Path) -> None:
    folder = ring(tmp_path / "ring", passing()[0], ["a", "b", "c"])
    whole = (folder / "b").read_bytes()
    (folder / "b").write_bytes(whole[:-10])  # in mid-record: the packet is in no file
    found = evaluate(folder, out)
    assert (found.counts.matched, found.counts.unmatched_egress) == (COUNT - 1, 1)
    assert said(found)["capture-damaged"].startswith(f"{folder / 'b'}: damaged after packet 99 ")
    assert found.inputs.ingress.unread["without-end"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (pcapng(passing()[0][:3]), "ring/c: pcapng, where the files before it are pcap"),
        (pcap(passing()[0][:3], linktype=147), "ring/c: link type 147"),
        (b"notes of whoever measured, which are no capture at all", "ring/c: not a capture"),
        (None, r"ring/c: not a file: .*pattern in quotes"),
    ],
)
def test_a_file_that_does_not_belong_is_named(
    tmp_path: Path, out: Path, content: bytes | None, says: str
) -> None:
    folder = ring(tmp_path / "ring", passing()[0], ["a", "b"])
    (folder / "c").mkdir() if content is None else (folder / "c").write_bytes(content)
    with pytest.raises(InputError, match=says):
        evaluate(folder, out)


def test_names_of_no_files_and_files_without_a_date_are_refused(tmp_path: Path, out: Path) -> None:
    with pytest.raises(InputError, match="no file has such a name"):
        evaluate(tmp_path / "*.gz", out)
    for name in ("a.mscap", "b.mscap"):
        (tmp_path / name).write_bytes(mscap([(5, 7)]))
    with pytest.raises(InputError, match="do not tell how several files follow each other"):
        evaluate(tmp_path / "*.mscap", out)


def two_interfaces(before: list[Stamped], after: list[Stamped]) -> bytes:
    packets = sorted([(time, 0, data) for time, data in before] + [(t, 1, d) for t, d in after])
    units = {0: 1000, 1: 1}
    return (
        section()
        + interface(resolution=6, name="eth0")
        + interface(name="eth1")
        + b"".join(enhanced(time // units[on], data, on) for time, on, data in packets)
    )


def test_two_interfaces_of_a_file_are_two_sides(tmp_path: Path) -> None:
    both = tmp_path / "both.pcapng"
    both.write_bytes(two_interfaces(*passing()))
    found = evaluate(both)
    assert exact(found)
    assert [side.chosen for side in found.inputs.both] == [
        "interface:0 (eth0)",
        "interface:1 (eth1)",
    ]
    assert [side.others for side in found.inputs.both] == [COUNT, COUNT]
    assert [side.resolution_ns for side in found.inputs.both] == [1_000, 1]
    by_name = evaluate(*(Source("b", (both,), f"interface:eth{number}") for number in (0, 1)))
    assert exact(by_name) and by_name.inputs.ingress.chosen == "interface:0 (eth0)"
    with pytest.raises(InputError, match=r"called 'eth7': there are 0 \(eth0\), 1 \(eth1\)"):
        evaluate(Source("b", (both,), "interface:eth7"), both)


def tagged(number: int) -> Packet:
    whole = packet(number)
    return Ether(src=whole.src, dst=whole.dst) / Dot1Q(vlan=200) / whole.payload


def routed(number: int) -> Packet:
    return packet(number, MACS[2], MACS[3], ttl=63)


@pytest.mark.parametrize(
    ("after", "chosen"),
    [
        (tagged, ["vlan:none", "vlan:200"]),
        (routed, [f"from:{MACS[0]}", f"from:{MACS[2]}"]),
        (packet, ["copy:1", "copy:2"]),
    ],
)
def test_one_file_shows_packets_on_both_sides(
    tmp_path: Path, after: Callable[[int], Packet], chosen: list[str]
) -> None:
    """Behind a tag, a router, or unchanged, which is no copy of a mirror port."""
    before, behind = passing(after=after)
    both = write(tmp_path / "both", sorted(before + behind))
    found = evaluate(both)
    assert exact(found) and not said(found)
    assert [side.chosen for side in found.inputs.both] == chosen
    assert exact(evaluate(Source("b", (both,), "copy:1"), Source("b", (both,), "copy:2")))


def test_sides_that_cannot_be_told_apart_are_listed(tmp_path: Path, out: Path) -> None:
    with pytest.raises(InputError, match=f"give the capture .* interface:0: {COUNT}; vlan:none: "):
        evaluate(out)
    first, second = passing()
    three = section() + b"".join(interface(name=name) for name in "abc")
    hops = [first, second, [(time + 9_000, data) for time, data in second]]
    pairs = [(0, 1), (1, 2), (0, 2)]
    packets = [
        (time, on, data)
        for number in range(COUNT)
        for on in pairs[number % 3]
        for time, data in [hops[on][number]]
    ]
    three += b"".join(enhanced(time, data, on) for time, on, data in sorted(packets))
    (tmp_path / "three").write_bytes(three)
    with pytest.raises(InputError, match=r"in several ways; .* interface:1 \(b\): 200"):
        evaluate(tmp_path / "three")


def test_few_copies_may_be_packets_that_were_equal(tmp_path: Path) -> None:
    """Of three packets that have copies the device sends two again: just as many could be equal."""
    before, after = passing()
    three = sorted(before + [(time + 2_000, data) for time, data in before[9:30:10]])
    again = sorted(after + [(time + 30_000, data) for time, data in after[9:20:10]])
    found = evaluate(write(tmp_path / "three", three), write(tmp_path / "again", again))
    assert [side.copies for side in found.inputs.both] == [3, 0]
    assert (found.counts.matched, found.counts.duplicate_egress) == (COUNT, 2)


def test_what_is_left_out_is_a_bias(tmp_path: Path, out: Path) -> None:
    """A millisecond later it is no copy: which of the two left, nobody knows."""
    before = passing()[0]
    again = [(time + 1_000_000, data) for time, data in before[9::10]]
    found = evaluate(write(tmp_path / "in", sorted(before + again)), out, key="ip.id")
    assert "which is too low if they were slow" in said(found)["duplicate-ingress"]
    assert found.counts.duplicate_ingress == 2 * len(again)


def test_equal_packets_are_no_copies(tmp_path: Path) -> None:
    """Each packet is sent again a millisecond later: both are packets of their own."""
    before, after = passing()
    again = [
        sorted(side + [(time + 1_000_000, data) for time, data in side]) for side in (before, after)
    ]
    paths = [write(tmp_path / name, side) for name, side in zip(("in", "out"), again, strict=True)]
    found = evaluate(*paths)
    assert [side.copies for side in found.inputs.both] == [0, 0]
    assert found.counts.ingress == found.counts.egress == 2 * COUNT
    # A few packets that are sent twice are no rule either.
    few = sorted(before + [(time + 2_000, data) for time, data in before[:30]])
    few_out = sorted(after + [(time + 2_000, data) for time, data in after[:30]])
    found = evaluate(write(tmp_path / "few", few), write(tmp_path / "few-out", few_out))
    assert [side.copies for side in found.inputs.both] == [0, 0]
    assert found.counts.ingress == COUNT + 30


def test_two_pipes_of_one_program_are_read_at_the_same_time(tmp_path: Path) -> None:
    """It writes to both in turn, more than a pipe holds, and waits for who does not read."""
    sides = passing()
    pipes = [tmp_path / "in", tmp_path / "out"]
    padding = [[(time, data.ljust(1500, b"\0")) for time, data in side] for side in sides]
    contents = [pcap(side) for side in padding]
    assert min(map(len, contents)) > 4 * 65536
    for pipe in pipes:
        os.mkfifo(pipe)

    def tee() -> None:
        with pipes[0].open("wb", buffering=0) as one, pipes[1].open("wb", buffering=0) as other:
            for at in range(0, max(map(len, contents)), 1000):
                one.write(contents[0][at : at + 1000])
                other.write(contents[1][at : at + 1000])

    writing = Thread(target=tee, daemon=True)
    writing.start()
    found = evaluate(*pipes)
    writing.join(10)
    assert exact(found) and not writing.is_alive()
    assert [side.path for side in found.inputs.both] == list(map(str, pipes))


needs_libpcap = pytest.mark.skipif(
    ctypes.util.find_library("pcap") is None, reason="filters need libpcap"
)
LATENCY, RAW_IP = 30_000, 101
FILTERS = (
    "udp port 53", "tcp", "net 10.1.0.0/16 and not port 80", "ip6 and udp", "vlan 7 and udp",
    "icmp or arp", "greater 200", "ip[8] > 60 and udp[4:2] >= 40", "tcp[tcpflags] & tcp-syn != 0",
    "src host 10.1.0.3 or dst portrange 4000-5000", "ether host 02:00:00:00:00:01",
    "ip[2:2] * 3 - (ip[0] & 0xf) << 2 > 500", "(ip[2:2] % 7 ^ 3) / 2 = 1",
)  # fmt: skip


def any_packet(rng: random.Random, number: int) -> Packet:
    """A packet of one of many kinds."""
    ends = {"src": f"10.{rng.randrange(3)}.0.{rng.randrange(5)}", "dst": "10.1.0.9"}
    network = IP(**ends, id=number, ttl=rng.choice([60, 61, 64]))
    ports = {"sport": rng.randrange(1024, 9000), "dport": rng.choice([53, 80, 4500])}
    filling = Raw(number.to_bytes(4, "big") + bytes(rng.randrange(300)))
    kinds = {
        0: network / TCP(**ports, flags=rng.choice(["S", "A"])),
        1: IPv6(dst="fd00::1") / UDP(**ports),
        2: network / ICMP(seq=number),
    }
    return kinds.get(rng.randrange(6), network / UDP(**ports)) / filling


@pytest.fixture(scope="module")
def frames() -> list[bytes]:
    """Packets within frames, some of them with a tag or without IP."""
    rng = random.Random(3)
    found = []
    for number in range(400):
        ether = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
        packet = ARP(hwsrc=f"02:00:00:00:{number // 256:02x}:{number % 256:02x}", pdst="10.0.0.1")
        if number % 20:
            packet = any_packet(rng, number)
        found.append(bytes(ether / Dot1Q(vlan=7) / packet if number % 9 == 0 else ether / packet))
    return found


def filtered(folder: Path, packets: list[bytes], linktype: int = 1) -> tuple[Path, Path]:
    """The packets before a device and after it."""
    sides = folder / "in.pcap", folder / "out.pcap"
    for side, late in zip(sides, (0, LATENCY), strict=True):
        timed = ((START + i * 100_000 + late, packet) for i, packet in enumerate(packets))
        side.write_bytes(pcap(timed, linktype=linktype))
    return sides


@needs_libpcap
@pytest.mark.parametrize("words", FILTERS)
def test_what_libpcap_takes_is_evaluated(tmp_path: Path, frames: list[bytes], words: str) -> None:
    taken = matching(words, frames)
    assert 0 < sum(taken) <= len(frames)
    found = evaluate(*filtered(tmp_path, frames), filter=words)
    assert (found.counts.matched, found.counts.lost) == (sum(taken), 0)
    side = found.inputs.ingress
    assert (side.chosen, side.others) == (f"filter '{words}'", len(frames) - sum(taken))


@needs_libpcap
def test_packets_without_an_ethernet_header_are_filtered_alike(tmp_path: Path) -> None:
    rng = random.Random(4)
    packets = [bytes(any_packet(rng, number)) for number in range(200)]
    ethertypes = [b"\x08\0" if packet[0] >> 4 == 4 else b"\x86\xdd" for packet in packets]
    framed = [bytes(12) + one + packet for one, packet in zip(ethertypes, packets, strict=True)]
    pair = filtered(tmp_path, packets, RAW_IP)
    for words in ("udp port 53", "ip6", "less 100"):
        assert evaluate(*pair, filter=words).counts.matched == sum(matching(words, framed))


@needs_libpcap
def test_behind_a_nat_a_filter_of_its_own_counts(tmp_path: Path) -> None:
    pair = tmp_path / "in.pcap", tmp_path / "out.pcap"
    for side, network, late in zip(pair, ("10.0.0", "192.0.2"), (0, LATENCY), strict=True):
        hosts = (IP(src=f"{network}.{1 + i % 3}", dst="10.1.0.1", id=i) for i in range(300))
        packets = (bytes(Ether() / ip / UDP(dport=53) / Raw(bytes(20))) for ip in hosts)
        write(side, ((START + i * 100_000 + late, one) for i, one in enumerate(packets)))
    words = "src host 10.0.0.2"
    found = evaluate(*pair, filter=words, filter_after="src host 192.0.2.2")
    assert (found.counts.matched, found.counts.unmatched_egress) == (100, 0)
    found = evaluate(*pair, filter=words, filter_after="")
    counts = found.counts
    assert (counts.matched, counts.unmatched_egress + counts.outside_egress) == (100, 200)
    with pytest.raises(InputError, match=r"out.pcap: no packet of the capture is of filter 'src"):
        evaluate(*pair, filter=words)


@needs_libpcap
def test_what_a_filter_cannot_read_is_refused(tmp_path: Path, frames: list[bytes]) -> None:
    pair = filtered(tmp_path, frames)
    ids = tmp_path / "in.stamps"
    ids.write_bytes(stamps([(START, 1)]))
    for sides, after, words, says in (
        (pair, None, "udp prot 5", r"filter 'udp prot 5': .*syntax error"),
        (pair[:1], "udp", "udp", r"--filter-after is of the second capture"),
        ((ids, ids), None, "udp", r"in.stamps: it holds no frames, which a filter reads"),
    ):
        with pytest.raises(InputError, match=says):
            evaluate(*sides, filter=words, filter_after=after)
