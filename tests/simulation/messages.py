"""What clients and servers say to each other, byte by byte, and the frames that carry it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

ICMP, TCP, UDP, ICMPV6 = 1, 6, 17, 58
FIN, SYN, RST, ACK = 1, 2, 4, 16
CLIENT, SERVER = bytes([192, 0, 2, 1]), bytes([192, 0, 2, 53])
HOST, PEER = b"\2\0\0\0\0\1", b"\2\0\0\0\0\2"
RECORD = {"change": 20, "alert": 21, "handshake": 22, "data": 23}
TLS_1_3 = struct.pack(">HHH", 43, 2, 0x0304)
RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
"""The random of a ServerHello that asks for another ClientHello."""


@dataclass(frozen=True)
class Ends:
    """The addresses of a client and its server, and what stands around their packets."""

    client: bytes = CLIENT
    server: bytes = SERVER
    around: str = "Ethernet"

    def packet(self, asks: bool, protocol: int, carried: bytes, number: int = 0) -> bytes:
        """A packet of IP from the client, or to it; `number` is its id, or its flow's label."""
        addresses = self.client + self.server if asks else self.server + self.client
        if len(self.client) == 4:
            head = struct.pack(
                ">BBHHHBBH", 0x45, 0, 20 + len(carried), number & 0xFFFF, 0, 64, protocol, 0
            )
        else:
            head = struct.pack(">IHBB", 6 << 28 | number & 0xFFFF, len(carried), protocol, 64)
        return head + addresses + carried

    def frame(self, asks: bool, protocol: int, carried: bytes, number: int = 0) -> bytes:
        """The packet on a link; what is too short is padded, not with zeros."""
        around = AROUND[self.around]
        ethertype = 0x0800 if len(self.client) == 4 else 0x86DD
        return ethernet(asks, around(ethertype, self.packet(asks, protocol, carried, number)))


def ethernet(asks: bool, behind: bytes) -> bytes:
    macs = PEER + HOST if asks else HOST + PEER
    return (macs + behind).ljust(60, b"\x2e")


def _in_udp(port: int, head: bytes, carried: bytes) -> bytes:
    datagram = udp_head((49_152, port), len(head) + len(carried)) + head + carried
    return b"\x08\0" + Ends(b"\x0a\0\0\1", b"\x0a\0\0\2").packet(True, UDP, datagram)


AROUND: dict[str, Callable[[int, bytes], bytes]] = {
    "Ethernet": lambda kind, ip: struct.pack(">H", kind) + ip,
    "VLAN": lambda kind, ip: struct.pack(">HHH", 0x8100, 7, kind) + ip,
    "two VLANs": lambda kind, ip: struct.pack(">HHHHH", 0x88A8, 8, 0x8100, 7, kind) + ip,
    "MPLS": lambda _, ip: struct.pack(">HI", 0x8847, 16 << 12 | 1 << 8 | 64) + ip,
    "PPPoE": lambda kind, ip: struct.pack(
        ">HBBHHH", 0x8864, 0x11, 0, 3, len(ip) + 2, 0x21 if kind == 0x0800 else 0x57
    ) + ip,
    "VXLAN": lambda kind, ip: _in_udp(
        4789, b"\x08\0\0\0\0\0\7\0", HOST + PEER + struct.pack(">H", kind) + ip
    ),
    "GTP-U": lambda _, ip: _in_udp(2152, struct.pack(">BBHI", 0x30, 0xFF, len(ip), 7), ip),
}  # fmt: skip
"""What stands between the hardware addresses and the packet of IP."""


def udp_head(ports: tuple[int, int], length: int) -> bytes:
    return struct.pack(">HHHH", *ports, 8 + length, 0)


def tcp_head(ports: tuple[int, int], numbers: tuple[int, int], flags: int, options: bytes) -> bytes:
    seq, ack = (number % 2**32 for number in numbers)
    length = 20 + len(options)
    return struct.pack(">HHIIBBHHH", *ports, seq, ack, length << 2, flags, 900, 0, 0) + options


def labels(name: str) -> bytes:
    return b"".join(bytes([len(one)]) + one.encode() for one in name.rstrip(".").split(".")) + b"\0"


def dns_message(asks: bool, number: int, name: str = "", *, changes: bool = False) -> bytes:
    """A query or its answer; without a name an error that leaves the question out."""
    flags = (0 if asks else 0x8000) | (0x2800 if changes else 0x0100) | (0 if name else 5)
    question = labels(name) + b"\0\1\0\1" if name else b""
    more = 3 if changes and asks else 0
    record = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4" + CLIENT
    head = struct.pack(">HHHHHH", number, flags, bool(name), int(bool(name) and not asks), more, 0)
    return head + question + record * (more or int(bool(name) and not asks))


def dns(asks: bool, number: int, name: str, port: int = 40_000) -> bytes:
    """A frame with a query, or with its answer."""
    message = dns_message(asks, number, name)
    ports = (port, 53) if asks else (53, port)
    return Ends().frame(asks, UDP, udp_head(ports, len(message)) + message)


def echo(asks: bool, number: int, v6: bool = False) -> bytes:
    kind = 128 + (not asks) if v6 else 8 * asks
    return struct.pack(">BBHHH", kind, 0, 0, 7, number)


def ping(asks: bool, number: int) -> bytes:
    """A frame with an echo request, or with its reply."""
    return Ends().frame(asks, ICMP, echo(asks, number))


def ntp(asks: bool, origin: int, receive: int, transmit: int) -> bytes:
    return bytes([0x23 if asks else 0x24]).ljust(24, b"\0") + struct.pack(
        ">QQQ", origin, receive, transmit
    )


def gtp_u(asks: bool, number: int) -> bytes:
    behind = b"" if asks else b"\x0e\0"
    head = struct.pack(">BBHIHBB", 0x32, 2 - asks, 4 + len(behind), 0, number, 0, 0)
    return head + behind


def ptp(asks: bool, number: int, client: int) -> bytes:
    """Delay_Req, or the Delay_Resp to it."""
    port, other = (b"\0\x1b\x19\xff\xfe\0\0" + bytes([end, 0, 1]) for end in (client, 255))
    kind, length = (1, 44) if asks else (9, 54)
    head = struct.pack(">BBHBBHqI", kind, 2, length, 0, 0, 0, 0, 0)
    message = head + (port if asks else other) + struct.pack(">HBb", number, 1 if asks else 3, 0)
    return message + bytes(10) + (b"" if asks else port)


def quic(to: bytes, of: bytes, kind: int = 0, version: int = 1, length: int = 1200) -> bytes:
    """A packet with a long header: an Initial (0), a Handshake packet (2) or a Retry (3)."""
    kind = kind if version == 1 else (kind + 1) % 4
    ids = bytes([len(to)]) + to + bytes([len(of)]) + of
    head = bytes([0xC0 | kind << 4]) + version.to_bytes(4, "big") + ids
    return head.ljust(length, b"\x55")


def record(kind: str, content: bytes) -> bytes:
    return struct.pack(">BHH", RECORD[kind], 0x0303, len(content)) + content


def hello(client: bool, extensions: bytes = b"", random: bytes = bytes(32)) -> bytes:
    """The message of a handshake, without the head of its record."""
    chosen = b"\0\2\x13\1\1\0" if client else b"\x13\1\0"
    body = b"\3\3" + random + b"\0" + chosen + struct.pack(">H", len(extensions)) + extensions
    return bytes([1 if client else 2]) + len(body).to_bytes(3, "big") + body


def http2(kind: int, stream: int, content: bytes = b"", flags: int = 4) -> bytes:
    """A frame of HTTP/2."""
    head = len(content).to_bytes(3, "big") + bytes([kind, flags])
    return head + stream.to_bytes(4, "big") + content
