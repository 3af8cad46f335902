"""Devices that change packets, as scapy makes and changes them.

They rewrite headers, add and take off others, pad and mark, and do what a NAT or a translator does.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import TypeAlias

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
