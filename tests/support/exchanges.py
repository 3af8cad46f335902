"""A request and its answer of each kind, as frames made by scapy."""

from __future__ import annotations

from scapy.all import (
    DNS,
    DNSQR,
    DNSRR,
    ICMP,
    IP,
    TCP,
    UDP,
    Ether,
    Packet,
    Raw,
)

from tests.simulation import messages

CLIENT, SERVER = "192.0.2.1", "192.0.2.53"
SYN, ACK = 0x02, 0x10


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
    return udp(asks, (40_000, port), Raw(messages.quic(to, of, kind, version, length)))


def hello(client: bool, extensions: bytes = b"") -> bytes:
    return messages.record("handshake", messages.hello(client, extensions))


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
