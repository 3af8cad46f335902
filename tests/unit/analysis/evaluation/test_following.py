"""Packets are followed through devices that change them, as scapy makes and changes them.

A random device stands between two captures: it rewrites headers, adds and removes others, pads,
marks, drops and reorders. What it did is known, and so is what each packet took.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest
from captures import pcap
from pairs import said
from scapy.contrib.geneve import GENEVE
from scapy.contrib.gtp import GTP_U_Header
from scapy.contrib.mpls import MPLS
from scapy.layers.inet import GRE, ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrHopByHop
from scapy.layers.l2 import ARP, Dot1AD, Dot1Q, Ether
from scapy.layers.ppp import PPP, PPPoE
from scapy.layers.sctp import SCTP, SCTPChunkData
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet, Padding, Raw

from tailtap.analysis.evaluation import Evaluation
from tailtap.analysis.evaluation import evaluate as evaluate_captures

#: Both captures run all the time.
evaluate = partial(evaluate_captures, throughout=True)

DEVICES = int(os.environ.get("TAILTAP_DEVICES", "80" if "CI" in os.environ else "240"))
"""How many random devices there are. Each has a number, and the same number is the same device."""
BATCHES = 8
"""Tests that share them out, so that several CPUs do."""
FEW, PACKETS = 16, 80
START_NS, STEP_NS, LEAST_NS = 1_000_000_000_000_000, 40_000, 7_000
Device: TypeAlias = Callable[[Packet, random.Random], Packet]


def payload(number: int, draw: random.Random) -> bytes:
    """Bytes that are not those of other packets, or only at their end, or not at all."""
    kind = draw.randrange(3)
    filling = bytes(draw.choices(range(256), k=draw.choice([0, 4, 40, 400])))
    if kind == 0:
        return filling + number.to_bytes(4, "big")
    if kind == 1:
        return number.to_bytes(4, "little") + bytes(300)
    return bytes(100) + number.to_bytes(4, "big")


def transport(number: int, draw: random.Random) -> Packet:
    ports = {"sport": 1024 + draw.randrange(5), "dport": draw.choice([53, 443, 5000])}
    match draw.randrange(5):
        case 0:
            options = draw.choice([[], [("NOP", None), ("NOP", None), ("Timestamp", (number, 7))],
                                   [("MSS", 1460), ("Timestamp", (number, 0))]])  # fmt: skip
            flags = draw.choice(["A", "PA", "S"])
            return TCP(**ports, seq=1000 * number, flags=flags, options=options)
        case 1:
            return ICMP(id=draw.randrange(3), seq=number)
        case 2:
            return SCTP(**ports) / SCTPChunkData(tsn=number)
        case _:
            return UDP(**ports)


def sent(number: int, draw: random.Random, *, v6: bool) -> Packet:
    """Any packet of its own."""
    carried = transport(number, draw) / Raw(payload(number, draw))
    if not v6:
        addresses = {"src": f"10.0.0.{draw.randrange(1, 4)}", "dst": "192.0.2.9"}
        return IP(**addresses, id=number + 1, ttl=64) / carried
    if isinstance(carried, ICMP):
        carried = UDP(sport=7, dport=9) / Raw(payload(number, draw))
    header = IPv6(src="2001:db8::1", dst=f"2001:db8::{draw.randrange(2, 5)}", hlim=64)
    return header / IPv6ExtHdrHopByHop() / carried if draw.random() < 0.3 else header / carried


def on_the_wire(packet: Packet) -> Packet:
    return Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / packet


def again(packet: Packet) -> Packet:
    """The same with lengths and checksums made anew."""
    for layer in packet.layers():
        for field in ("chksum", "len", "plen", "ihl", "dataofs"):
            if layer is not TCP or field != "dataofs":
                packet[layer].fields.pop(field, None)
    return packet


def hop(frame: Packet, draw: random.Random) -> Packet:
    """A router: another time to live, other hardware addresses."""
    frame.src, frame.dst = "02:00:00:00:00:03", "02:00:00:00:00:04"
    if IP in frame:
        frame[IP].ttl -= 1
    else:
        frame[IPv6].hlim -= 1
    return again(frame)


def mark(frame: Packet, draw: random.Random) -> Packet:
    """Congestion, and another class of service."""
    if IP in frame:
        frame[IP].tos = draw.choice([0, 1, 3, 0xB8])
    else:
        frame[IPv6].tc = draw.choice([0, 3, 0xB8])
    return again(frame)


def pad(frame: Packet, draw: random.Random) -> Packet:
    return frame / Padding(bytes(draw.choices(range(256), k=draw.choice([0, 6, 22]))))


def behind(*headers: Packet) -> Device:
    """Headers between Ethernet and the packet."""

    def device(frame: Packet, draw: random.Random) -> Packet:
        inner, stack = frame.payload, Ether(src=frame.src, dst=frame.dst)
        for header in headers:
            stack = stack / header.copy()
        return stack / inner

    return device


def within(*headers: Packet, whole: bool) -> Device:
    """A tunnel of IP, which carries the whole frame or its packet."""

    def device(frame: Packet, draw: random.Random) -> Packet:
        outer = Ether(src=frame.src, dst=frame.dst) / IP(src="203.0.113.1", dst="203.0.113.2", id=7)
        for header in headers:
            outer = outer / header.copy()
        return outer / (frame if whole else frame.payload)

    return device


def tagged(tag: str) -> Device:
    """Bytes between both addresses and the ethertype."""

    def device(frame: Packet, draw: random.Random) -> Packet:
        data = bytes(frame)
        return Ether(data[:12] + bytes.fromhex(tag) + data[12:])

    return device


def carried(head: str, *, port: int = 0, protocol: int = 17, whole: bool = True) -> Device:
    """In a packet of IP, by UDP where it has a port, behind a header of bytes."""

    def device(frame: Packet, draw: random.Random) -> Packet:
        outer = Ether(src=frame.src, dst=frame.dst) / IP(dst="203.0.113.2", id=7, proto=protocol)
        if port:
            outer = outer / UDP(sport=port if port == 1701 else 49152, dport=port)
        return outer / Raw(bytes.fromhex(head) + bytes(frame if whole else frame.payload))

    return device


def in_segments(frame: Packet, draw: random.Random) -> Packet:
    """Segment routing over IPv6, which carries Ethernet."""
    outer = Ether(src=frame.src, dst=frame.dst) / IPv6(src="2001:db8::5", dst="2001:db8::6", nh=143)
    return outer / Raw(bytes(frame))


ADD: dict[str, Device] = {
    "r-tag": tagged("f1c1 0000 0009"),
    "hsr": tagged("892f 1040 0009"),
    "cmd": tagged("8909 0101 0001 0009"),
    "vn-tag": tagged("8926 0000 0001"),
    "srv6-ethernet": in_segments,
    "l2tp": carried("0002 0001 0001 ff03 0021", port=1701, whole=False),
    "l2tp-3": carried("0003 0000 00000009", port=1701),
    "l2tp-3-ip": carried("00000009", protocol=115),
    "mpls-udp": carried("00064140", port=6635, whole=False),
    "vxlan-gpe": carried("0c000003 00002a00", port=4790),
    "ether-ip": carried("3000", protocol=97),
    "erspan-3": carried("1000 22eb 00000000 20050001 00000000 00000200", protocol=47),
    "pptp": carried("3001 880b 0040 0005 00000001 21", protocol=47, whole=False),
    "router": hop,
    "marks": mark,
    "padding": pad,
    "vlan": behind(Dot1Q(vlan=100, prio=5)),
    "qinq": behind(Dot1AD(vlan=7), Dot1Q(vlan=100)),
    "mpls": behind(MPLS(label=16, s=0), MPLS(label=17, s=1)),
    "pppoe": behind(PPPoE(sessionid=3), PPP()),
    "ip-in-ip": within(whole=False),
    "gre": within(GRE(), whole=False),
    "gre-key": within(GRE(key_present=1, key=9, chksum_present=1), whole=False),
    "gre-ethernet": within(GRE(proto=0x6558), whole=True),
    "vxlan": within(UDP(sport=49152, dport=4789), VXLAN(vni=42), whole=True),
    "geneve": within(UDP(sport=49152, dport=6081), GENEVE(vni=42, proto=0x6558), whole=True),
    "gtp-u": within(UDP(sport=2152, dport=2152), GTP_U_Header(teid=5, gtp_type=255), whole=False),
}

LAYERS = (
    ["ip-in-ip", "gre", "gre-key", "gtp-u"],
    ["mpls", "pppoe"],
    ["vlan", "qinq", "r-tag", "hsr"],
    ["gre-ethernet", "vxlan", "geneve", "srv6-ethernet", "l2tp-3", "erspan-3"],
    ["padding"],
)
"""What each layer may add, the innermost first: no device puts a tag between MPLS and IP."""


def captured(folder: Path, name: str, frames: list[tuple[int, Packet]], snap: int = 65535) -> Path:
    """A capture of frames with their times in ns; `snap` bytes of each."""
    path = folder / name
    rows = [(START_NS + time_ns, bytes(frame)) for time_ns, frame in frames]
    path.write_bytes(pcap(rows, snap=snap))
    return path


def passed(
    folder: Path,
    frames: list[Packet],
    devices: list[Device],
    draw: random.Random,
    snap: int = 65535,
) -> tuple[Evaluation, dict[int, int]]:
    """What is found out of frames through devices, and what each took by when it came, in ns."""
    before, after, took = [], [], {}
    for number, frame in enumerate(frames):
        time_ns = STEP_NS * number
        before.append((time_ns, frame))
        if draw.random() < 0.1:
            continue
        latency = LEAST_NS + draw.randrange(3 * STEP_NS)
        took[START_NS + time_ns] = latency
        changed = Ether(bytes(frame))
        for device in devices:
            changed = device(changed, draw)
        after.append((time_ns + latency, changed))
    after.sort(key=lambda row: row[0])
    found = evaluate(
        captured(folder, "before.pcap", before, snap), captured(folder, "after.pcap", after, snap)
    )
    return found, took


def require_all(found: Evaluation, took: dict[int, int], sent: int, told: object = "") -> None:
    """Each packet that left was found, with what it took, and no other."""
    counts = found.counts
    assert {packet.ingress_ns: packet.latency for packet in found.worst()} == took, told
    assert (counts.matched, counts.lost) == (len(took), sent - len(took)), told
    assert counts.unmatched_egress == counts.noncausal == counts.duplicate_egress == 0, told


@pytest.mark.parametrize("batch", range(BATCHES))
def test_packets_are_followed_through_random_devices(batch: int, tmp_path: Path) -> None:
    layers = (["router", "marks"], *LAYERS)
    order = [name for layer in layers for name in layer].index
    for number in range(batch, DEVICES, BATCHES):
        draw = random.Random(number)
        v6 = draw.random() < 1 / 3
        frames = [on_the_wire(sent(place, draw, v6=v6)) for place in range(FEW)]
        chosen = (draw.choice(layer) for layer in draw.sample(LAYERS, draw.randrange(1, 4)))
        names = ["router", "marks", *sorted(chosen, key=order)]
        found, took = passed(tmp_path, frames, [ADD[name] for name in names], draw)
        told = (number, names, found.counts)
        assert found.key == "packet", told
        require_all(found, took, FEW, told)


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
def test_what_is_within_is_what_tshark_finds(tmp_path: Path) -> None:
    # What a session of L2TP carries it knows only from how that was set up.
    names = [name for name in ADD if name not in ("padding", "l2tp-3", "l2tp-3-ip")]
    draw = random.Random(1)
    frames = [
        ADD[name](on_the_wire(IP(id=1000 + n) / UDP(dport=5000) / Raw(b"within")), draw)
        for n, name in enumerate(names)
    ]
    path = captured(tmp_path, "all.pcap", list(enumerate(frames)))
    fields = ["-T", "fields", "-E", "occurrence=l", "-e", "ip.id"]
    run = subprocess.run(
        ["tshark", "-r", path, *fields], capture_output=True, text=True, check=True
    )
    found = {name: int(ip_id, 0) for name, ip_id in zip(names, run.stdout.split(), strict=True)}
    assert found == {name: 1000 + n for n, name in enumerate(names)}


@pytest.mark.parametrize("name", sorted(ADD))
@pytest.mark.parametrize("turned", [False, True])
def test_a_header_may_be_added_or_taken_off(name: str, turned: bool, tmp_path: Path) -> None:
    draw = random.Random(name)
    frames = [on_the_wire(sent(number, draw, v6=False)) for number in range(20)]
    more = [ADD[name](Ether(bytes(frame)), draw) for frame in frames]
    pair = (more, frames) if turned else (frames, more)
    paths = [
        captured(tmp_path, side, [(STEP_NS * n + 5 * place, one) for n, one in enumerate(rows)])
        for place, (side, rows) in enumerate(zip(("before", "after"), pair, strict=True))
    ]
    found = evaluate(*paths)
    assert found.counts.matched == 20 and found.min == found.max == 5


def nat(frame: Packet, draw: random.Random) -> Packet:
    """Another source, and another port for each of its connections."""
    frame[IP].src = "198.51.100.1"
    if UDP in frame:
        frame[UDP].sport += 30_000
    elif TCP in frame:
        frame[TCP].sport += 30_000
    elif ICMP in frame:
        frame[ICMP].id += 5
    elif SCTP in frame:
        frame[SCTP].sport += 30_000
    return again(frame)


def new_ids(frame: Packet, draw: random.Random) -> Packet:
    frame[IP].id = draw.randrange(1 << 16)
    return again(frame)


def new_payload(frame: Packet, draw: random.Random) -> Packet:
    """What a device that encrypts or compresses makes of it."""
    frame[IP].remove_payload()
    return again(frame / UDP(sport=1, dport=2) / Raw(bytes(draw.choices(range(256), k=30))))


def quoting(number: int) -> Packet:
    """An error of ICMP about a packet that passed the NAT the other way."""
    sport = 1024 + number % 5
    about = IP(src="10.0.0.1", dst="192.0.2.9", id=number, ttl=3)
    carried = (
        UDP(sport=sport, dport=53) / Raw(b"x" * 8),
        TCP(sport=sport, dport=443, seq=number),
        ICMP(id=sport, seq=number),
    )[number % 3]
    error = ICMP(type=(3, 11, 12)[number // 3 % 3], code=1)
    return IP(src="192.0.2.9", dst="10.0.0.1", id=number) / error / Raw(bytes(about / carried))


def nat_of_errors(frame: Packet, draw: random.Random) -> Packet:
    """What the NAT makes of them: addresses, ports and checksums, also of what is quoted."""
    frame[IP].dst = "198.51.100.1"
    quoted = IP(bytes(frame[ICMP].payload))
    quoted.src = "198.51.100.1"
    for layer, field in ((UDP, "sport"), (TCP, "sport"), (ICMP, "id")):
        if layer in quoted:
            setattr(quoted[layer], field, getattr(quoted[layer], field) + 30_000)
    frame[ICMP].remove_payload()
    return again(frame / Raw(bytes(again(quoted))))


def ptp(number: int) -> Packet:
    """Sync, or what follows it, over IPv4, IPv6 or Ethernet alone."""
    header = struct.pack(
        ">BBHBBHqI10sHBb", 8 * (number & 1), 2, 44, 0, 0, 0, 0, 0, b"clock", number, 0, 0
    )
    message = Raw(header + struct.pack(">HII", 0, 1_700_000_000, 0))
    ports = UDP(sport=319 + (number & 1), dport=319 + (number & 1))
    match number % 3:
        case 0:
            return on_the_wire(IP(dst="224.0.1.129", id=0) / ports / message)
        case 1:
            return on_the_wire(IPv6(dst="ff0e::181") / ports / message / Raw(b"\0\0"))
    return Ether(src="02:00:00:00:00:01", dst="01:1b:19:00:00:00", type=0x88F7) / message


def transparent_clock(frame: Packet, draw: random.Random) -> Packet:
    """A clock adds to the correction, and makes up for it in the checksum or behind the message."""
    data, residence = bytes(frame), draw.randrange(1 << 30)
    at = {0x0800: 42, 0x86DD: 62, 0x88F7: 14}[frame.type]
    data = data[: at + 8] + struct.pack(">q", residence << 16) + data[at + 16 :]
    if frame.type == 0x88F7:
        return Ether(data)
    if frame.type == 0x86DD:
        return Ether(data[:-2] + draw.randbytes(2))
    return again(Ether(data))


def nat64(frame: Packet, draw: random.Random) -> Packet:
    """A translator between both versions of IP (RFC 7915), here without a checksum of its own."""
    kind = {ICMP: 58, UDP: 17, TCP: 6}
    layer = next(layer for layer in kind if layer in frame)
    carried = bytearray(bytes(frame[layer]))
    if layer is ICMP:
        carried[0] += 120
    out = IPv6(src="64:ff9b::a00:1", dst="2001:db8::9", nh=kind[layer])
    return Ether(src=frame.src, dst=frame.dst) / out / Raw(bytes(carried))


def renumber(frame: Packet, draw: random.Random) -> Packet:
    frame[TCP].seq += 777_000
    return again(frame)


def any_sent(n: int, draw: random.Random) -> Packet:
    return on_the_wire(sent(n, draw, v6=False))


FOLLOWED: dict[str, tuple[Callable[[int, random.Random], Packet], list[Device], str]] = {
    "a NAT": (any_sent, [hop, nat], "packet-nat"),
    "new ids": (any_sent, [hop, new_ids], "packet-flow"),
    "a NAT and new ids": (any_sent, [hop, nat, new_ids], "packet-payload"),
    "errors behind a NAT": (lambda n, _: on_the_wire(quoting(n)), [nat_of_errors], "packet-nat"),
    "a transparent clock": (lambda n, _: ptp(n), [transparent_clock], "packet"),
    "NAT64": (
        lambda n, _: on_the_wire(
            IP(id=n) / (UDP(), TCP(seq=n), ICMP(id=7, seq=n))[n % 3] / Raw(b"%d" % n)
        ),
        [nat64],
        "packet-payload",
    ),
    "another payload": (
        lambda n, draw: on_the_wire(
            IP(src="10.0.0.1", dst="10.0.0.2", id=n + 1) / UDP() / Raw(payload(n, draw))
        ),
        [hop, new_payload],
        "packet-id",
    ),
    "frames without IP": (
        lambda n, _: on_the_wire(ARP(pdst=f"10.0.{n}.1")),
        [ADD["vlan"]],
        "packet",
    ),
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_what_a_device_changes_is_left_out_of_the_key(name: str, tmp_path: Path) -> None:
    made, devices, key = FOLLOWED[name]
    draw = random.Random(name)
    found, took = passed(tmp_path, [made(n, draw) for n in range(PACKETS)], devices, draw)
    require_all(found, took, PACKETS)
    assert found.key == key
    assert made is not any_sent or "differ" in (found.key_reason or "")
    if name == "another payload":
        assert found.lost_at_least == 0 and "payload-changed" in said(found)
    if name == "frames without IP":
        assert found.worst(1)[0].key.startswith("0x0806 ")


def test_new_numbers_of_tcp_are_no_new_payload(tmp_path: Path) -> None:
    frames = [on_the_wire(IP(id=n + 1) / TCP(seq=n, flags="A")) for n in range(PACKETS)]
    found, took = passed(tmp_path, frames, [renumber], random.Random(1))
    require_all(found, took, PACKETS)
    assert found.key_reason is not None and "payload" not in found.key_reason
    assert changes(found)["TCP sequence number"][2] == len(took)
    assert "payload" not in said(found)["payload-changed"]


def changes(found: Evaluation) -> dict[str, tuple[str, str, int]]:
    assert found.device is not None
    return {row.what: (row.before, row.after, row.packets) for row in found.device.changes}


def test_what_a_device_did_is_told(tmp_path: Path) -> None:
    """As it did it; fields that it left alone are not there."""
    draw = random.Random(4)
    header = IP(src="10.0.0.1", dst="192.0.2.9", ttl=64)
    frames = []
    for number in range(PACKETS):
        header.id = number + 1
        udp = UDP(sport=5000, dport=53) / Raw(payload(number, draw))
        frames.append(on_the_wire(header.copy() / udp))
    found, _ = passed(tmp_path, frames, [hop, nat, ADD["vlan"]], draw)
    matched = found.counts.matched
    assert changes(found) == {
        "source MAC": ("02:00:00:00:00:01", "02:00:00:00:00:03", matched),
        "destination MAC": ("02:00:00:00:00:02", "02:00:00:00:00:04", matched),
        "headers": ("", "VLAN 100", matched),
        "source address": ("10.0.0.1", "198.51.100.1", matched),
        "source port": ("5000", "35000", matched),
        "time to live": ("64", "63", matched),
    }
    found, _ = passed(tmp_path, frames, [ADD["vxlan"]], draw)
    assert changes(found)["headers"] == ("", "IPv4, VXLAN 42, Ethernet", found.counts.matched)
    found, _ = passed(tmp_path, frames, [], draw)
    assert changes(found) == {}


def test_marks_on_some_packets_are_counted(tmp_path: Path) -> None:
    def third(frame: Packet, draw: random.Random) -> Packet:
        if frame[IP].id % 3 == 0:
            frame[IP].tos = 3
        return again(frame)

    frames = [
        on_the_wire(IP(dst="192.0.2.9", id=n + 1, tos=2) / UDP() / Raw(bytes(30)))
        for n in range(PACKETS)
    ]
    found, _ = passed(tmp_path, frames, [third], random.Random(5))
    before, after, packets = changes(found)["ECN"]
    assert (before, after) == ("ECT(0)", "CE") and 0.2 < packets / found.counts.matched < 0.45


@pytest.mark.parametrize("snap", [60, 64, 96, 128, 300])
def test_what_both_captures_have_of_a_payload_counts(snap: int, tmp_path: Path) -> None:
    draw = random.Random(snap)
    frames = [on_the_wire(sent(number, draw, v6=False)) for number in range(PACKETS)]
    found, took = passed(tmp_path, frames, [hop, ADD["vlan"]], draw, snap)
    require_all(found, took, PACKETS)


def test_captures_that_begin_apart_are_not_matched_by_chance(tmp_path: Path) -> None:
    """The first thousand packets of both have one in common by its payload alone."""
    frames = []
    for number in range(2_600):
        address = f"10.0.{number // 200}.1"
        content = 0 if number == 1_500 else number
        packet = IP(src=address, dst="192.0.2.9", id=number + 1) / UDP() / Raw(b"%08d" % content)
        frames.append((STEP_NS * number, on_the_wire(packet)))
    later = [(time_ns + 5, frame) for time_ns, frame in frames[1_400:]]
    found = evaluate(captured(tmp_path, "in", frames), captured(tmp_path, "out", later))
    assert (found.key, found.counts.matched, found.counts.lost) == ("packet", 1_200, 1_400)


def test_a_packet_is_shown_by_where_it_went(tmp_path: Path) -> None:
    frames = [on_the_wire(sent(n, random.Random(n), v6=n % 2 == 1)) for n in range(PACKETS)]
    found, _ = passed(tmp_path, frames, [], random.Random(3))
    shown = {packet.key for packet in found.worst()}
    assert any(key.startswith("udp 10.0.0.") and " > 192.0.2.9:" in key for key in shown), shown
    assert any(key.startswith("tcp [2001:db8::1]:") for key in shown), shown
