"""Writes the first inputs of every fuzz target into fuzz/corpus; `make fuzz-corpus` runs it.

The inputs are captures of a few packets in every variant that a reader knows, so that the fuzzer
starts behind the magic numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from captures import (
    COMPRESSIONS,
    MICROSECONDS,
    compressed,
    erf,
    frame,
    mscap,
    pcap,
    pcapng,
    stamps,
    with_trailer,
)
from exchanges import hello, spoken
from marks import marks
from protocols import frames as of_protocols

from tests.simulation import messages
from tests.simulation.messages import TLS_1_3, UDP, Ends, ethernet, http2, record, udp_head

HERE = Path(__file__).resolve().parent
SEPARATOR = b"\nEGRESS\n"
MOST_OF_A_FRAME = 300
START = 7_000_000_000_000
IDS = range(12)


def times(delay: int) -> list[tuple[int, int]]:
    """Stamps of a few packets, 10 us apart, that passed `delay` ns after the first tap."""
    return [(START + 10_000 * i + delay, i) for i in IDS]


def frames(delay: int, *, ipv6: bool = False) -> list[tuple[int, bytes]]:
    """The same packets with their frames, IPv4 or IPv6, some with VLAN tags."""
    return [(t, frame(i, tags=[7] * (i % 3), ipv6=ipv6)) for t, i in times(delay)]


def captures(delay: int) -> dict[str, dict[str, bytes]]:
    """Variants of a capture by format and name."""
    plain, ipv6 = frames(delay), frames(delay, ipv6=True)
    wraps = [((t % 2**32) if i % 2 else t, i) for t, i in times(delay)]
    resolutions = {"us": None, "ns": 9, "binary": 0x80 | 20, "ps": 12}
    order = {"little": "<", "big": ">"}
    other = struct.pack("<IIIII", 0x0BAD, 20, 1, 2, 20)
    packets = [(t, data[14:]) for t, data in frames(delay, ipv6=True) if data[12:14] == b"\x86\xdd"]
    cooked = {
        "null": (0, struct.pack("<I", 30)),
        "sll": (113, struct.pack(">HHHQH", 4, 1, 6, 0, 0x86DD)),
        "sll2": (276, struct.pack(">HHIHBBQ", 0x86DD, 0, 3, 1, 0, 6, 0)),
        "ppp": (9, b"\xff\x03\x00\x57"),
        "hdlc": (104, b"\x0f\x00\x86\xdd"),
    }
    links = {
        name: pcap([(t, head + data) for t, data in packets], linktype=number)
        for name, (number, head) in cooked.items()
    }
    metamako = [(t, with_trailer(data, t + 7)) for t, data in plain]
    exablaze = [(t, with_trailer(data, t + 7, kind="exablaze")) for t, data in plain]
    sections = pcapng(plain[:6]) + other + pcapng(plain[6:], order=">", tsresol=6)
    return {
        "pcap": {
            "ns": pcap(plain),
            "us": pcap(plain, magic=MICROSECONDS),
            "big": pcap(ipv6, order=">"),
            "short": pcap(plain, snap=44),
            "raw": pcap(packets, linktype=101),
            "radio": pcap(plain, linktype=127),
            "metamako": pcap(metamako),
            "exablaze": pcap(exablaze),
            **links,
        },
        "pcapng": {
            **{name: pcapng(plain, tsresol=value) for name, value in resolutions.items()},
            **{name: pcapng(ipv6, order=value) for name, value in order.items()},
            "sections": sections,
            "raw": pcapng(packets, linktype=101),
        },
        "erf": {
            "ethernet": erf(plain, port=1, drops=3),
            "ipv6": erf(packets, kind=23),
            "hdlc": erf([(t, b"\xff\x03\x00\x57" + data) for t, data in packets], kind=1),
        },
        "marks": {
            "closed": marks(times(delay)),
            "sampled": marks(times(delay), samples=((0, 4), (START, 2))),
            "open": marks(times(delay), closed=False),
        },
        "mscap": {"plain": mscap(times(delay)), "wraps": mscap(wraps)},
        "stamps": {
            "closed": stamps(times(delay)),
            "lossy": stamps(times(delay), counts=(20, 12, 8, 5)),
            "open": stamps(times(delay), closed=False),
        },
    }


def seeds() -> dict[tuple[str, str], bytes]:
    """All inputs by target and name."""
    before, after = captures(0), captures(3_000)
    found = {(kind, name): data for kind, all_ in after.items() for name, data in all_.items()}
    for kind, all_ in after.items():
        name, data = next(iter(all_.items()))
        for how in COMPRESSIONS:
            found["compressed", f"{kind}-{name}-{how}"] = compressed(data, how)
            twice = compressed(data[:100], how) + compressed(data[100:], how)
            found["compressed", f"{kind}-{name}-{how}-members"] = twice
    for number, kind in enumerate(before):
        # Both sides are mscap where the bits 3 and 4 say so.
        bits = 0b11000 if kind == "mscap" else 0
        for name, data in after[kind].items():
            choice = bytes([bits | number % 8])
            found["pair", f"{kind}-{name}"] = choice + before[kind][name] + SEPARATOR + data
    late = list(reversed(frames(0)))
    found["pair", "unsorted"] = b"\2" + pcap(late) + SEPARATOR + pcap(frames(3_000))
    found["pair", "swapped"] = b"\0" + pcap(frames(3_000)) + SEPARATOR + pcap(frames(0))
    doubled = [packet for packet in frames(3_000) for _ in range(2)]
    found["pair", "twice"] = b"\1" + pcap(frames(0)) + SEPARATOR + pcap(doubled)
    # A few hundred bytes that hold many packets with one key.
    many = compressed(mscap([(START, 7)]) * 200_000, "zstd")
    found["pair", "one-key"] = bytes([0b11000]) + many + SEPARATOR + many
    mixed = pcap(frames(0)) + SEPARATOR + compressed(stamps(times(900)), "zstd")
    found["pair", "mixed"] = b"\0" + mixed
    for name, data in of_protocols(1):
        found["packet", name.replace(", ", "-").replace(" ", "-")] = data[:MOST_OF_A_FRAME]
    for name, packets in exchanges().items():
        found["transactions", name] = b"\0" + pcap(packets)
        found["transactions", f"{name}-cut"] = b"\5" + pcap(packets, snap=70)
        halves = pcap(packets[::2]) + SEPARATOR + pcap(packets[1::2])
        found["transactions", f"{name}-two"] = b"\12" + halves
    return found


def datagrams() -> Iterator[tuple[bytes, bytes]]:
    """A request and its answer of each kind that needs no connection, as frames."""

    def udp(asks: bool, ports: tuple[int, int], message: bytes) -> bytes:
        head = udp_head(ports if asks else ports[::-1], len(message))
        return Ends().frame(asks, UDP, head + message)

    sides = (True, False)
    yield messages.dns(True, 3, "www.example.com"), messages.dns(False, 3, "WWW.example.com")
    yield messages.ping(True, 3), messages.ping(False, 3)
    yield (
        udp(True, (123, 123), messages.ntp(True, 0, 0, 7)),
        udp(False, (123, 123), messages.ntp(False, 7, 8, 9)),
    )
    for port, message in ((2152, messages.gtp_u), (443, _quic)):
        first, second = (udp(asks, (40_000, port), message(asks, 3)) for asks in sides)
        yield first, second
    first, second = (ethernet(asks, b"\x88\xf7" + messages.ptp(asks, 3, 1)) for asks in sides)
    yield first, second


def _quic(asks: bool, number: int) -> bytes:
    client, server = bytes([number]) * 8, bytes([number, 9])
    return messages.quic(client, server) if asks else messages.quic(server, b"server")


def exchanges() -> dict[str, list[tuple[int, bytes]]]:
    """Requests and their answers, a capture for each kind of connection and one of datagrams."""
    kinds = enumerate(datagrams())
    simple = [(START + 1000 * n + 90 * m, data) for n, both in kinds for m, data in enumerate(both)]
    talks = {
        "http": (b"GET /a HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
        "chunks": (
            b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        ),
        "http2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + http2(1, 1, b"a"), http2(1, 1, b"b")),
        "tls": (hello(True), hello(False, TLS_1_3) + record("data", b"finished")),
    }
    made = {"datagrams": simple}
    for name, (request, answer) in talks.items():
        more = record("data", b"more")
        talk = spoken(
            (10_000, True, request[:9]),
            (11_000, True, request[9:]),
            (20_000, False, answer),
            (30_000, True, more if name == "tls" else request),
            (40_000, False, more if name == "tls" else answer),
        )
        made[name] = [(START + time, data) for time, data in talk]
    return made


def main() -> None:
    """Writes them, each under the name seed-NAME."""
    for (target, name), data in seeds().items():
        path = HERE / "corpus" / target / f"seed-{name}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


if __name__ == "__main__":
    main()
