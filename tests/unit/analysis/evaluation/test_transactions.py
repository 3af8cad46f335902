"""Requests and their answers in captures that scapy made."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from captures import MICROSECONDS, erf, pcap
from exchanges import (
    ACK,
    CLIENT,
    SYN,
    dns,
    frame,
    hello,
    ping,
    quic,
    sent,
    spoken,
    tcp,
    udp,
)
from scapy.all import DNS, DNSQR, DNSRR, IP, UDP, Ether, NBNSQueryRequest, Raw

from tailtap.analysis.evaluation import Transactions, evaluate_transactions
from tailtap.base.errors import InputError, NothingMatched
from tailtap.records.evaluation import TransactionCounts
from tests.simulation.messages import http2

START = 1_700_000_000_000_000_000
ASKS, SAYS = True, False
"""Who sends a segment: the client or the server."""
Packets = list[tuple[int, bytes]]
Waits = Sequence[tuple[int, int]]


def written(folder: Path, packets: Packets, name: str = "one.pcap", **options: Any) -> Path:
    """A capture of packets at times behind `START`, in the order of these."""
    path = folder / name
    path.write_bytes(pcap([(START + t, data) for t, data in sorted(packets)], **options))
    return path


def of(folder: Path, packets: Packets, **settings: Any) -> Transactions:
    return evaluate_transactions(written(folder, packets), **settings)


def counts(found: Transactions, kind: str) -> TransactionCounts:
    return next(one.counts for one in found.kinds if one.kind == kind)


def waits(found: Transactions, kind: str) -> list[tuple[int, int]]:
    """Time and wait of each answered request, in the order of time."""
    return sorted((packet.ingress_ns - START, packet.latency) for packet in found[kind].worst())


def require_counts(found: Transactions, kind: str, **expected: int) -> None:
    told = counts(found, kind)
    assert {name: getattr(told, name) for name in expected} == expected, kind


class Case(NamedTuple):
    """Packets, the waits that follow from them by kind, and some of the counts."""

    packets: Packets
    waits: Mapping[str, Waits]
    counts: Mapping[str, Mapping[str, int]] = {}
    settings: Mapping[str, Any] = {}


def dns_message(asks: bool, number: int, **sections: Any) -> DNS:
    return DNS(id=number, qr=int(not asks), **{"qd": [], **sections})


def over_tcp(message: DNS, number: int = 7) -> bytes:
    content = struct.pack(">H", number) + bytes(message)[2:]
    return struct.pack(">H", len(content)) + content


def longer_than_its_frame(data: bytes) -> bytes:
    claimed = int.from_bytes(data[16:18], "big") + 4_000
    return data[:16] + claimed.to_bytes(2, "big") + data[18:]


def field(asks: bool, number: int) -> bytes:
    return udp(asks, (7_000, 7_001), Raw(number.to_bytes(2, "big") + (b"?" if asks else b"!")))


def stamp(asks: bool, number: int, asked: int = 0) -> bytes:
    """As of STAMP (RFC 8762): a reflector sends a number of its own, and behind it the sender's."""
    content = number.to_bytes(4, "big") + bytes(20) + asked.to_bytes(4, "big")
    return udp(asks, (50_700, 862), Raw(content))


def pings(count: int) -> Packets:
    """One each microsecond, answered after 100 ns and more."""
    return [(n * 1_000 + (100 + n) * (not asks), ping(asks, n))
            for n in range(count) for asks in (True, False)]  # fmt: skip


A_ASKS, A_SAYS = (dns(asks, 1, "a.example") for asks in (True, False))
AGAIN = [
    (0, A_ASKS),
    (1_000, A_ASKS),
    (1_300, A_SAYS),
    (1_400, A_SAYS),
    (1_500, dns(False, 2, "b")),
]
QUESTION = {"qd": DNSQR(qname="a.example")}
ZONE = {"opcode": 5, "qd": DNSQR(qname="example", qtype="SOA")}
CHANGES = [DNSRR(rrname=f"{n}.example", rdata="192.0.2.1") for n in range(3)]
NAMES = (40_000, 53)
REFUSED = dns_message(False, 7, rcode=5)
WEB = (40_000, 80)
GET_1, NO_1 = b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 204 No\r\n\r\n"
ONCE = spoken((10_000, ASKS, GET_1), ports=WEB)
LOST = [*spoken((10_000, ASKS, GET_1), (211_000_000, SAYS, NO_1), ports=WEB),
        (210_000_000, ONCE[-1][1])]  # fmt: skip
OPENS = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + http2(4, 0)
GET, HINTS, OK = b"\x82\x86\x84", b"\x48\x82\x08\x19", b"\x88"
"""First fields of headers: a method, the status 103 by Huffman's code, and 200 by the table."""
BY_ACK = 1_001 + len(GET_1)
CASES = {
    "sent again": Case(
        AGAIN, {"dns": [(0, 1_300)]},
        {"dns": {"retransmitted": 1, "repeated_answers": 1, "unmatched_answers": 1}},
    ),
    "sent again, since the last": Case(AGAIN, {"dns": [(1_000, 300)]}, {}, {"since": "last"}),
    "errors of DNS without their question": Case(
        [(0, udp(True, NAMES, dns_message(True, 7, **QUESTION))),
         (300, udp(False, NAMES, REFUSED)),
         (400, udp(False, NAMES, REFUSED)),
         # An id that nobody asked by, and bytes of another protocol that look like one.
         (450, udp(False, NAMES, dns_message(False, 9, rcode=5))),
         (460, udp(False, (40_000, 5_000), dns_message(False, 9, rcode=5))),
         (500, udp(True, NAMES, dns_message(True, 8, ns=CHANGES, **ZONE))),
         (900, udp(False, NAMES, dns_message(False, 8, opcode=5, rcode=5))),
         *spoken((10_000, ASKS, over_tcp(dns_message(True, 7, **QUESTION), 7)),
                 (10_600, SAYS, over_tcp(REFUSED, 7)),
                 (20_000, ASKS, over_tcp(dns_message(True, 8, **QUESTION), 8)),
                 (20_600, SAYS, over_tcp(REFUSED, 8)), ports=(40_001, 53))],
        {"dns": [(0, 300), (500, 400), (10_000, 600), (20_000, 600)]},
        {"dns": {"requests": 4, "repeated_answers": 1, "unmatched_answers": 1}},
    ),
    "HTTP/2 answers in any order": Case(
        spoken((10_000, ASKS, OPENS[:10]),
               (10_100, ASKS, OPENS[10:] + http2(1, 1, b"get")),
               (11_000, ASKS, http2(1, 3, b"post") + http2(0, 3, b"x" * 500)),
               (12_000, SAYS, http2(4, 0) + http2(1, 3, b"200")),
               (14_000, SAYS, http2(0, 3, b"y" * 900) + http2(1, 3, b"trailer")
                + http2(1, 1, b"200"))),
        {"http": [(10_100, 3_900), (11_000, 1_000)]}, {"http": {"reordered": 1}},
    ),
    # A table has the status of further hints, and nobody can look it up: what comes next tells.
    "interim responses of HTTP/2 are no answers": Case(
        spoken((10_000, ASKS, OPENS + http2(1, 1, GET) + http2(1, 3, GET) + http2(1, 5, GET)),
               (11_000, SAYS, http2(1, 1, HINTS)),
               (12_000, SAYS, http2(1, 3, b"\xbe") + http2(1, 5, b"\xbe")),
               (13_000, SAYS, http2(1, 3, OK) + http2(0, 5, b"content")),
               (14_000, SAYS, http2(1, 1, OK) + http2(0, 3, b"x")
                + http2(1, 5, b"\x40trailer", flags=5))),
        {"http": [(10_000, 2_000), (10_000, 3_000), (10_000, 4_000)]},
    ),
    "HTTP/2 whose beginning was not captured": Case(
        spoken((5_000, SAYS, b"rest of a frame"),
               (10_000, ASKS, http2(8, 0, bytes(4), flags=0) + http2(1, 7, GET)),
               (13_000, SAYS, http2(1, 7, OK)), opened=False),
        {"http": [(10_000, 3_000)]},
    ),
    # The second server takes no data with a SYN.
    "TCP fast open": Case(
        [(0, tcp(True, 1_000, 0, GET_1, SYN)),
         (300, tcp(False, 9, BY_ACK, b"", SYN | ACK)),
         (400, tcp(True, BY_ACK, 10)),
         (900, tcp(False, 10, BY_ACK, NO_1)),
         (2_000, tcp(True, 5_000, 0, GET_1, SYN, (40_001, 443))),
         (2_500, tcp(False, 9, 5_001, b"", SYN | ACK, (40_001, 443)))],
        {"tcp-handshake": [(0, 300), (2_000, 500)], "http": [(0, 900)]},
    ),
    "packets that claim to be longer than their frame": Case(
        [(time, longer_than_its_frame(data))
         for time, data in spoken((10_000, ASKS, GET_1), (13_000, SAYS, NO_1), ports=WEB)],
        {"http": [(10_000, 3_000)]},
    ),
    "a byte that asks whether the end is there": Case(
        [(0, tcp(True, 999, 500, b"\0", ports=WEB)),
         (10, tcp(False, 500, 1_000, ports=WEB)),
         (100, tcp(True, 1_000, 500, GET_1, ports=WEB)),
         (700, tcp(False, 500, 1_018, NO_1, ports=WEB))],
        {"http": [(100, 600)]},
    ),
    # The first request and its response are missing, and nobody acknowledges anything for long.
    "what is held behind a gap keeps its time": Case(
        [one for one in spoken((10_000, ASKS, GET_1), (10_500, SAYS, NO_1), (20_000, ASKS, GET_1),
                               (20_500, SAYS, NO_1), (30_000, ASKS, GET_1), (30_500, SAYS, NO_1),
                               (120_500, ASKS, b""), ports=WEB) if one[0] // 1_000 != 10],
        {"http": [(20_000, 500), (30_000, 500)]},
    ),
    "behind a proxy, and what a connection becomes": Case(
        spoken((0, ASKS, b"CONNECT a.example:443 HTTP/1.1\r\n\r\n"),
               (4_000, SAYS, b"HTTP/1.1 200 OK\r\n\r\n"),
               (5_000, ASKS, hello(True)),
               (8_000, SAYS, hello(False)), opened=False)
        + spoken((10_000, ASKS, b"GET /socket HTTP/1.1\r\nUpgrade: websocket\r\n\r\n"),
                 (17_000, SAYS, b"HTTP/1.1 101 Switching Protocols\r\n\r\n\x81\x05hello"),
                 ports=(40_001, 80)),
        {"http": [(0, 4_000), (10_000, 7_000)], "tls-server-hello": [(5_000, 3_000)]},
    ),
    "a response that ends with its connection": Case(
        spoken((10_000, ASKS, b"GET / HTTP/1.0\r\n\r\n"),
               (11_000, SAYS, b"HTTP/1.0 200 OK\r\n\r\n"),
               (12_000, SAYS, b"HTTP/1.1 200 OK is part of the body\r\n\r\n")),
        {"http": [(10_000, 1_000)]}, {"http": {"unmatched_answers": 0}},
    ),
    "answers in one packet": Case(
        spoken((10_000, ASKS, b"GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n"),
               (12_000, SAYS, 2 * NO_1), ports=WEB),
        {"http": [(10_000, 2_000)] * 2}, {"http": {"coalesced": 1}},
    ),
    "a request of TCP that was lost on the way": Case(
        LOST, {"http": [(10_000, 210_990_000)]}, {"http": {"retransmitted": 1}},
    ),
    "the same, since the last": Case(
        LOST, {"http": [(210_000_000, 1_000_000)]}, {}, {"since": "last"}
    ),
    "QUIC counts from the first Initial": Case(
        [(0, quic(True, b"destined", b"own")),
         (1_000, quic(True, b"destined", b"own")),
         (3_000, quic(False, b"own", b"servers", kind=2, length=200)),
         (4_000, quic(True, b"servers", b"own")),
         (4_500, quic(False, b"own", b"servers")),
         (9_000, quic(True, b"another1", b"", version=0x6B3343CF)),
         (9_900, quic(False, b"", b"servers", version=0x6B3343CF))],
        {"quic-initial": [(0, 3_000), (9_000, 900)]},
        {"quic-initial": {"requests": 2, "retransmitted": 1, "repeated_answers": 0}},
    ),
    "an id at a place": Case(
        [(0, field(True, 1)), (100, field(True, 2)), (150, field(True, 2)), (400, field(False, 2)),
         (500, field(False, 1)), (600, field(True, 1)), (900, field(False, 1)),
         (950, field(False, 1))],
        {"field": [(0, 500), (100, 300), (600, 300)]},
        {"field": {"retransmitted": 1, "repeated_answers": 1, "reordered": 1}},
        {"key": "42:2:be"},
    ),
    "an id that answers have elsewhere": Case(
        [(n * 1_000, stamp(True, n)) for n in range(20) if n % 5 != 1]
        + [(n * 1_000 + 700, stamp(False, place, n))
           for place, n in enumerate(n for n in range(20) if n % 5 != 2)],
        {"field": [(n * 1_000, 700) for n in range(20) if n % 5 not in (1, 2)]},
        {"field": {"requests": 16, "unanswered": 4, "unmatched_answers": 4}},
        {"key": "udp.payload+0:4:be", "key_after": "udp.payload+24:4:be", "window_ns": 900},
    ),
    "requests at the start are trimmed": Case(
        pings(10), {"icmp-echo": [(n * 1_000, 100 + n) for n in range(4, 10)]},
        {"icmp-echo": {"trimmed": 4}}, {"trim_ns": 3_500},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_waits_follow_from_the_packets(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    found = of(tmp_path, case.packets, **case.settings)
    assert {kind: waits(found, kind) for kind in case.waits} == case.waits
    for kind, expected in case.counts.items():
        require_counts(found, kind, **expected)


BROADCAST = IP(src=CLIENT, dst="192.0.2.255")
NETBIOS = frame(BROADCAST, UDP(sport=137, dport=137), NBNSQueryRequest(QUESTION_NAME=b"PC"))


@pytest.mark.parametrize(
    ("packets", "settings", "says"),
    [
        ([(0, A_ASKS), (2_000, A_SAYS)], {"window_ns": 2_000}, "none of 1 requests has an answer"),
        ([(0, NETBIOS), (750_000_000, NETBIOS)], {}, "no request with an answer of a known kind"),
        ([(0, sent(True, UDP(sport=5, dport=6), Raw(b"x" * 40)))], {}, "no request with an answer"),
        ([(0, field(True, 1)), (500, field(False, 1))], {"key": "packet-nat"}, "is of packets"),
    ],
)
def test_what_is_refused(
    packets: Packets, settings: Mapping[str, Any], says: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=says):
        of(tmp_path, packets, **settings)


def test_stamps_of_microseconds_are_an_uncertainty(tmp_path: Path) -> None:
    packets = [(n * 1_000_000, ping(True, n)) for n in range(200)]
    packets += [(n * 1_000_000 + 30_000 + 1_000 * (n % 17), ping(False, n)) for n in range(200)]
    found = evaluate_transactions(written(tmp_path, packets, magic=MICROSECONDS))
    assert found["icmp-echo"].within_ns == 1_000


@pytest.mark.parametrize("snap", [96, 160, 512])
def test_headers_that_were_cut_count_by_their_packets(snap: int, tmp_path: Path) -> None:
    cookie = b"Cookie: " + b"c" * 900
    head = b"HTTP/1.1 200 OK\r\nSet-%s\r\nContent-Length: 1200\r\n\r\n" % cookie
    turns = []
    for number in range(20):
        time, request = 10_000 * (1 + number), b"GET /%d HTTP/1.1\r\n%s\r\n\r\n" % (number, cookie)
        turns += [(time, ASKS, request), (time + 3_000 + number, SAYS, head)]
        turns += [(time + later, SAYS, b"x" * 600) for later in (4_000, 5_000)]
    found = evaluate_transactions(written(tmp_path, spoken(*turns), snap=snap))
    assert waits(found, "http") == [(10_000 * (1 + n), 3_000 + n) for n in range(20)]
    assert counts(found, "http").cut == 40
    assert "snap-length" in [warning.code for warning in found.kinds[-1].warnings]


def test_of_two_directions_that_of_the_requests_comes_first(tmp_path: Path) -> None:
    talk = spoken((10_000, ASKS, GET_1), (12_500, SAYS, NO_1), ports=WEB)
    sides: tuple[Packets, Packets] = ([], [])
    for time, data in [*talk, (5, ping(True, 1)), (65, ping(False, 1))]:
        sides[Ether(data)[IP].src != CLIENT].append((time, data))
    paths = [written(tmp_path, side, f"{place}.pcap") for place, side in enumerate(sides)]
    with pytest.raises(NothingMatched, match="give the capture of the requests first"):
        evaluate_transactions(*reversed(paths))


def test_two_places_that_see_both_directions(tmp_path: Path) -> None:
    near = [(0, ping(True, 1)), (100, ping(False, 1))]
    far = [(20, ping(True, 1)), (70, ping(False, 1))]
    paths = [written(tmp_path, near, "near.pcap"), written(tmp_path, far, "far.pcap")]
    found = evaluate_transactions(*paths)
    assert waits(found, "icmp-echo") == [(0, 70)]
    assert [warning.code for warning in found.warnings] == ["both-hold-requests"]


def test_interfaces_of_one_direction_each_are_one_place(tmp_path: Path) -> None:
    packets = [
        (n * 1_000 + 300 * (not asks), asks, ping(asks, n))
        for n in range(30)
        for asks in (True, False)
    ]
    whole = b"".join(erf([(START + time, data)], port=asks) for time, asks, data in sorted(packets))
    (tmp_path / "one.erf").write_bytes(whole)
    found = evaluate_transactions(tmp_path / "one.erf")
    assert [wait for _, wait in waits(found, "icmp-echo")] == [300] * 30


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    found = of(tmp_path, [*pings(10), (9_500, A_ASKS)])
    out = tmp_path / "out"
    found.write(out)
    read = type(found["icmp-echo"]).load(out / "icmp-echo")
    assert read.counts == found["icmp-echo"].counts
    assert read.percentile(0.5) == found["icmp-echo"].percentile(0.5)
    assert not (out / "dns").exists(), "nobody answered"
    (unanswered,) = [kind for kind in found.record().kinds if kind.kind == "dns"]
    assert unanswered.latency_ns is None and unanswered.counts.open_at_end == 1
    of(tmp_path, [(0, A_ASKS), (5, A_SAYS)]).write(out)
    assert (out / "dns").exists() and not (out / "icmp-echo").exists()
