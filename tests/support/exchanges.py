"""A request and its answer of each kind, as frames made by scapy."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from scapy.all import (
    DNS,
    DNSQR,
    DNSRR,
    ICMP,
    IP,
    NTP,
    TCP,
    UDP,
    Ether,
    ICMPv6EchoReply,
    ICMPv6EchoRequest,
    IPv6,
    Packet,
    Raw,
)
from scapy.contrib.gtp import GTPEchoRequest, GTPEchoResponse, GTPHeader

CLIENT, SERVER = "192.0.2.1", "192.0.2.53"
SYN, ACK = 0x02, 0x10
RECORD = {"handshake": 22, "change": 20, "data": 23}
TLS_1_3 = struct.pack(">HHH", 43, 2, 0x0304)


def sent(asks: bool, *layers: Packet) -> bytes:
    """A frame from the client to the server, or back."""
    ends = (CLIENT, SERVER) if asks else (SERVER, CLIENT)
    return frame(IP(src=ends[0], dst=ends[1]), *layers)


def frame(*layers: Packet) -> bytes:
    whole = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
    for layer in layers:
        whole /= layer
    return bytes(whole)


def udp(asks: bool, ports: tuple[int, int], *payload: Packet) -> bytes:
    """A datagram between a port of the client and one of the server."""
    source, destination = ports if asks else ports[::-1]
    return sent(asks, UDP(sport=source, dport=destination), *payload)


def tcp(
    asks: bool,
    seq: int,
    ack: int,
    payload: bytes = b"",
    flags: int = ACK,
    ports: tuple[int, int] = (40_000, 443),
) -> bytes:
    source, destination = ports if asks else ports[::-1]
    head = TCP(sport=source, dport=destination, seq=seq, ack=ack, flags=flags)
    return sent(asks, head, Raw(payload))


def dns(asks: bool, number: int, name: str, port: int = 40_000) -> bytes:
    answer = None if asks else DNSRR(rrname=name, rdata="192.0.2.7")
    message = DNS(id=number, qr=int(not asks), qd=DNSQR(qname=name), an=answer)
    return udp(asks, (port, 53), message)


def ping(asks: bool, number: int) -> bytes:
    return sent(asks, ICMP(type=8 if asks else 0, id=7, seq=number))


def ping6(asks: bool, number: int) -> bytes:
    kind = ICMPv6EchoRequest if asks else ICMPv6EchoReply
    ends = ("2001:db8::1", "2001:db8::2")[:: 1 if asks else -1]
    return frame(IPv6(src=ends[0], dst=ends[1]), kind(id=7, seq=number))


def ntp(asks: bool, number: int) -> bytes:
    stamp = {"sent" if asks else "orig": float(3_900_000_000 + number)}
    return udp(asks, (123, 123), NTP(mode=3 if asks else 4, **stamp))


def gtp_u(asks: bool, number: int) -> bytes:
    head = GTPHeader(gtp_type=1 if asks else 2, S=1, seq=number, teid=0)
    message = GTPEchoRequest() if asks else GTPEchoResponse()
    return udp(asks, (40_000, 2152), head, message)


def ptp(asks: bool, number: int, vlan: bool = False) -> bytes:
    """Delay_Req, or the Delay_Resp to it, over Ethernet."""
    port = b"\0\x1b\x19\xff\xfe\0\0\1\0\1"
    other = b"\0\x1b\x19\xff\xfe\0\0\2\0\1"
    head = struct.pack(">BBHBBHqI", 1 if asks else 9, 2, 44 if asks else 54, 0, 0, 0, 0, 0)
    message = head + (port if asks else other) + struct.pack(">HBb", number, 1 if asks else 3, 0)
    message += bytes(10) + (b"" if asks else port)
    tag = b"\x81\0\0\7" if vlan else b""
    return b"\1\x1b\x19\0\0\0" + b"\2\0\0\0\0\1" + tag + b"\x88\xf7" + message


def quic(
    asks: bool,
    to: bytes,
    of: bytes,
    *,
    kind: int = 0,
    version: int = 1,
    length: int = 1200,
    port: int = 443,
) -> bytes:
    """A packet with a long header: an Initial (0), a Handshake packet (2) or a Retry (3)."""
    kind = kind if version == 1 else (kind + 1) % 4
    ids = bytes([len(to)]) + to + bytes([len(of)]) + of
    head = bytes([0xC0 | kind << 4]) + version.to_bytes(4, "big") + ids
    return udp(asks, (40_000, port), Raw(head.ljust(length, b"\x55")))


def record(kind: str, content: bytes) -> bytes:
    return struct.pack(">BHH", RECORD[kind], 0x0303, len(content)) + content


def hello(client: bool, extensions: bytes = b"", random: bytes = bytes(32)) -> bytes:
    chosen = b"\0\2\x13\1\1\0" if client else b"\x13\1\0"
    body = b"\3\3" + random + b"\0" + chosen + struct.pack(">H", len(extensions)) + extensions
    return record("handshake", bytes([1 if client else 2]) + len(body).to_bytes(3, "big") + body)


def http2(kind: int, stream: int, content: bytes = b"", flags: int = 4) -> bytes:
    return (
        len(content).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + content
    )


def spoken(
    *turns: tuple[int, bool, bytes], ports: tuple[int, int] = (40_000, 443), opened: bool = True
) -> list[tuple[int, bytes]]:
    """Segments of a connection of TCP whose ends take turns: when, whether the client sends, what.

    They come behind those that open it, at 0, 1,000 and 2,000 ns, or without these.
    """
    opening = [(0, True, b"", SYN), (1_000, False, b"", SYN | ACK), (2_000, True, b"", ACK)]
    next_byte = {True: 1_000, False: 4_294_967_290}  # of each end: the server's wraps soon
    packets = []
    for time, asks, payload, flags in [*opening * opened, *((*turn, ACK) for turn in turns)]:
        seq, ack = next_byte[asks], next_byte[not asks] if flags & ACK else 0
        packets.append((time, tcp(asks, seq, ack, payload, flags, ports)))
        next_byte[asks] = (seq + len(payload) + bool(flags & SYN)) % 2**32
    return packets


def datagrams(number: int) -> Sequence[tuple[str, bytes, bytes]]:
    """A request and its answer of each kind that needs no connection."""
    ids = bytes([number % 256]) * 8, bytes([number % 256, 9])
    return (
        ("dns", dns(True, number, "www.example.com"), dns(False, number, "WWW.example.com")),
        ("icmp-echo", ping(True, number), ping(False, number)),
        ("icmp-echo", ping6(True, number), ping6(False, number)),
        ("ntp", ntp(True, number), ntp(False, number)),
        ("gtp-u-echo", gtp_u(True, number), gtp_u(False, number)),
        ("ptp-delay", ptp(True, number), ptp(False, number)),
        ("quic-initial", quic(True, *ids), quic(False, ids[1], b"server")),
    )
