"""Requests and their answers in captures that scapy made."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from captures import MICROSECONDS, erf, pcap
from exchanges import (
    ACK,
    CLIENT,
    SYN,
    TLS_1_3,
    Dialogue,
    datagrams,
    dns,
    frame,
    hello,
    http2,
    ping,
    ptp,
    quic,
    record,
    sent,
    tcp,
    udp,
)
from scapy.all import DNS, DNSQR, DNSRR, IP, NTP, UDP, Dot1Q, Ether, NBNSQueryRequest, Raw
from scapy.contrib.gtp import GTP_U_Header
from scapy.layers.vxlan import VXLAN

from tailtap.analysis.evaluation import Transactions, evaluate_transactions
from tailtap.base.errors import InputError, NothingMatched
from tailtap.records.evaluation import TransactionCounts

START = 1_700_000_000_000_000_000
SECOND_NS = 1_000_000_000
Packets = list[tuple[int, bytes]]


def written(folder: Path, packets: Packets, name: str = "one.pcap", **options: Any) -> Path:
    """A capture of packets at times behind `START`, in the order of these."""
    path = folder / name
    path.write_bytes(pcap([(START + t, data) for t, data in sorted(packets)], **options))
    return path


def of(folder: Path, packets: Packets, **settings: Any) -> Transactions:
    """What is found in a capture of these packets."""
    return evaluate_transactions(written(folder, packets), **settings)


def counts(found: Transactions, kind: str) -> TransactionCounts:
    return next(one.counts for one in found.kinds if one.kind == kind)


def waits(found: Transactions, kind: str) -> list[tuple[int, int]]:
    """Time and wait of each answered request, in the order of time."""
    return sorted((packet.ingress_ns - START, packet.latency) for packet in found[kind].worst())


def test_each_kind_of_datagrams(tmp_path: Path) -> None:
    packets: Packets = []
    expected: dict[str, list[tuple[int, int]]] = {}
    for number in range(1, 40):
        for place, (kind, request, answer) in enumerate(datagrams(number)):
            time, wait = number * 1_000_000 + place * 10_000, 500 + 31 * number + place
            packets.append((time, request))
            if number % 5:
                packets.append((time + wait, answer))
                expected.setdefault(kind, []).append((time, wait))
    found = of(tmp_path, packets)
    assert {kind.kind for kind in found.kinds} == set(expected)
    for kind, times in expected.items():
        assert waits(found, kind) == sorted(times)
        assert counts(found, kind).open_at_end == counts(found, kind).requests - len(times)
        assert counts(found, kind).unmatched_answers == 0
    assert "id 39 www.example.com." in found["dns"].worst(1)[0].key.lower()


def test_requests_behind_tags_and_in_tunnels(tmp_path: Path) -> None:
    asks, answers = dns(True, 1, "a.example"), dns(False, 1, "a.example")
    inner = [Ether(asks), Ether(answers)]
    tunnels = [
        [bytes(Ether() / Dot1Q(vlan=7) / Dot1Q(vlan=8) / one[IP]) for one in inner],
        [frame(IP(), UDP(dport=4789), VXLAN(flags=8, vni=7), one) for one in inner],
        [frame(IP(), UDP(dport=2152), GTP_U_Header(teid=7), one[IP]) for one in inner],
    ]
    for request, answer in tunnels:
        found = of(tmp_path, [(0, request), (700, answer)])
        assert waits(found, "dns") == [(0, 700)]
    found = of(tmp_path, [(0, ptp(True, 5, vlan=True)), (90, ptp(False, 5, vlan=True))])
    assert waits(found, "ptp-delay") == [(0, 90)]


def test_requests_that_are_sent_again(tmp_path: Path) -> None:
    asks, answers = dns(True, 1, "a.example"), dns(False, 1, "a.example")
    packets = [
        (0, asks),
        (1_000, asks),
        (1_300, answers),
        (1_400, answers),
        (1_500, dns(False, 2, "b")),
    ]
    found = of(tmp_path, packets)
    assert waits(found, "dns") == [(0, 1_300)]
    told = counts(found, "dns")
    assert (told.retransmitted, told.repeated_answers, told.unmatched_answers) == (1, 1, 1)
    assert waits(of(tmp_path, packets, since="last"), "dns") == [(1_000, 300)]
    with pytest.raises(NothingMatched, match="none of 1 requests has an answer"):
        of(tmp_path, [(0, asks), (2_000, answers)], window_ns=2_000)


def test_the_same_id_with_another_question_or_port_is_another_request(tmp_path: Path) -> None:
    packets = [
        (0, dns(True, 1, "a.example")),
        (10, dns(True, 1, "b.example")),
        (20, dns(True, 1, "a.example", port=40_001)),
        (400, dns(False, 1, "a.example", port=40_001)),
        (500, dns(False, 1, "b.example")),
        (900, dns(False, 1, "a.example")),
    ]
    found = of(tmp_path, packets)
    assert waits(found, "dns") == [(0, 900), (10, 490), (20, 380)]
    assert counts(found, "dns").reordered == 2


def dns_message(asks: bool, number: int, **sections: Any) -> DNS:
    return DNS(id=number, qr=int(not asks), **{"qd": [], **sections})


def test_dns_errors_without_their_question(tmp_path: Path) -> None:
    question = {"qd": DNSQR(qname="a.example")}
    zone = {"opcode": 5, "qd": DNSQR(qname="example", qtype="SOA")}
    changes = [DNSRR(rrname=f"{n}.example", rdata="192.0.2.1") for n in range(3)]
    refused = dns_message(False, 7, rcode=5)
    talk = Dialogue((40_001, 53))
    for time, number in ((10_000, 7), (20_000, 8)):
        for asks, message in ((True, dns_message(True, number, **question)), (False, refused)):
            content = bytes(message) if asks else struct.pack(">H", number) + bytes(message)[2:]
            whole = struct.pack(">H", len(content)) + content
            (talk.asks if asks else talk.says)(time + 600 * (not asks), whole)
    ports = (40_000, 53)
    packets = [
        (0, udp(True, ports, dns_message(True, 7, **question))),
        (300, udp(False, ports, refused)),
        (400, udp(False, ports, refused)),
        # An id that nobody asked by, and bytes of another protocol that look like one.
        (450, udp(False, ports, dns_message(False, 9, rcode=5))),
        (460, udp(False, (40_000, 5_000), dns_message(False, 9, rcode=5))),
        (500, udp(True, ports, dns_message(True, 8, ns=changes, **zone))),
        (900, udp(False, ports, dns_message(False, 8, opcode=5, rcode=5))),
        *talk.packets,
    ]
    found = of(tmp_path, packets)
    assert waits(found, "dns") == [(0, 300), (500, 400), (10_000, 600), (20_000, 600)]
    told = counts(found, "dns")
    assert (told.requests, told.repeated_answers, told.unmatched_answers) == (4, 1, 1)


def test_the_name_service_of_netbios_is_no_dns(tmp_path: Path) -> None:
    broadcast = IP(src=CLIENT, dst="192.0.2.255")
    asks = frame(broadcast, UDP(sport=137, dport=137), NBNSQueryRequest(QUESTION_NAME=b"PC"))
    with pytest.raises(NothingMatched, match="no request with an answer of a known kind"):
        of(tmp_path, [(0, asks), (750_000_000, asks)])


def time_packet(asks: bool, origin: float, receive: float, transmit: float) -> bytes:
    stamps = {"orig": origin, "recv": receive, "sent": transmit}
    return udp(asks, (123, 123), NTP(mode=3 if asks else 4, **stamps))


def test_ntp_of_simple_clients_and_interleaved(tmp_path: Path) -> None:
    epoch = 3_900_000_000.0
    simple: Packets = []
    for number in range(4):
        time = number * 2 * SECOND_NS
        simple.append((time, time_packet(True, 0, 0, 0)))
        if number != 1:
            simple.append((time + 800, time_packet(False, 0, epoch, epoch)))
    found = of(tmp_path, simple, window_ns=3 * SECOND_NS)
    expected = [(number * 2 * SECOND_NS, 800) for number in (0, 2, 3)]
    assert waits(found, "ntp") == expected
    assert (counts(found, "ntp").requests, counts(found, "ntp").unanswered) == (4, 1)
    interleaved = [
        (0, time_packet(True, 0, 0, epoch)),
        (700, time_packet(False, epoch, epoch + 1, epoch + 2)),
        (10_000, time_packet(True, epoch + 1, epoch + 3, epoch + 4)),
        (10_900, time_packet(False, epoch + 3, epoch + 5, epoch + 6)),
        (11_000, time_packet(False, epoch + 3, epoch + 5, epoch + 6)),
    ]
    found = of(tmp_path, interleaved)
    assert waits(found, "ntp") == [(0, 700), (10_000, 900)]
    assert counts(found, "ntp").repeated_answers == 1


def test_packets_that_were_cut(tmp_path: Path) -> None:
    packets = [(0, dns(True, 1, "a.example")), (50, ping(True, 1)), (90, ping(False, 1))]
    found = evaluate_transactions(written(tmp_path, packets, snap=50))
    assert waits(found, "icmp-echo") == [(50, 40)]
    assert "dns" not in [kind.kind for kind in found.kinds]


def test_stamps_of_microseconds_are_an_uncertainty(tmp_path: Path) -> None:
    packets = [(n * 1_000_000, ping(True, n)) for n in range(200)]
    packets += [(n * 1_000_000 + 30_000 + 1_000 * (n % 17), ping(False, n)) for n in range(200)]
    found = evaluate_transactions(written(tmp_path, packets, magic=MICROSECONDS))
    assert found["icmp-echo"].within_ns == 1_000


def retry() -> bytes:
    """A HelloRetryRequest."""
    special = "cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c"
    return hello(False, TLS_1_3, bytes.fromhex(special))


def test_tls_1_2(tmp_path: Path) -> None:
    talk = Dialogue()
    asked = hello(True)
    talk.asks(10_000, asked[:20])
    talk.asks(10_500, asked[20:])
    talk.says(20_000, hello(False)[:30])
    talk.says(21_000, hello(False)[30:] + record("handshake", b"\x0b\0\0\1x"))
    talk.says(25_000, record("handshake", b"\x0e\0\0\0"))
    talk.asks(30_000, record("change", b"\1") + record("handshake", b"finished"))
    talk.says(40_000, record("change", b"\1") + record("handshake", b"finished"))
    talk.says(47_000, record("data", b"the server may speak first"))
    found = of(tmp_path, talk.packets)
    assert waits(found, "tcp-handshake") == [(0, 1_000)]
    assert waits(found, "tls-server-hello") == [(10_500, 10_500)]
    assert waits(found, "tls-flight") == [(10_500, 14_500)]
    assert waits(found, "tls-first-data") == [(10_500, 36_500)]


def test_tls_1_3_with_a_retry_and_a_ticket(tmp_path: Path) -> None:
    talk = Dialogue()
    talk.asks(10_000, hello(True))
    talk.says(15_000, retry())
    talk.asks(18_000, hello(True))
    talk.says(20_000, hello(False, TLS_1_3) + record("data", b"extensions"))
    talk.says(21_000, record("data", b"finished"))
    talk.asks(30_000, record("data", b"finished"))
    talk.says(31_000, record("data", b"ticket"))
    found = of(tmp_path, talk.packets)
    assert waits(found, "tls-server-hello") == [(10_000, 10_000)]
    assert waits(found, "tls-flight") == [(10_000, 11_000)]
    # Nobody without the keys can tell a ticket from data.
    assert waits(found, "tls-first-data") == [(10_000, 21_000)]


def test_a_refusal_of_tls_is_no_loss(tmp_path: Path) -> None:
    talk = Dialogue()
    talk.asks(10_000, hello(True))
    talk.says(15_000, b"\x15\3\3\0\2\2\x28")
    found = of(tmp_path, talk.packets)
    told = counts(found, "tls-server-hello")
    assert (told.requests, told.refused, told.unanswered) == (1, 1, 0)


def test_http_2_answers_in_any_order(tmp_path: Path) -> None:
    talk = Dialogue()
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + http2(4, 0)
    talk.asks(10_000, preface[:10])
    talk.asks(10_100, preface[10:] + http2(1, 1, b"get"))
    talk.asks(11_000, http2(1, 3, b"post") + http2(0, 3, b"x" * 500))
    talk.says(12_000, http2(4, 0) + http2(1, 3, b"200"))
    talk.says(14_000, http2(0, 3, b"y" * 900) + http2(1, 3, b"trailer") + http2(1, 1, b"200"))
    found = of(tmp_path, talk.packets)
    assert waits(found, "http") == [(10_100, 3_900), (11_000, 1_000)]
    assert counts(found, "http").reordered == 1


OPENS = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + http2(4, 0)
GET, HINTS, OK = b"\x82\x86\x84", b"\x48\x82\x08\x19", b"\x88"
"""First fields of headers: a method, the status 103 by Huffman's code, and 200 by the table."""


def test_interim_responses_of_http_2_are_no_answers(tmp_path: Path) -> None:
    talk = Dialogue()
    talk.asks(10_000, OPENS + http2(1, 1, GET) + http2(1, 3, GET) + http2(1, 5, GET))
    talk.says(11_000, http2(1, 1, HINTS))
    # A table has the status of further hints, and nobody can look it up: what comes next tells.
    talk.says(12_000, http2(1, 3, b"\xbe") + http2(1, 5, b"\xbe"))
    talk.says(13_000, http2(1, 3, OK) + http2(0, 5, b"content"))
    trailer = http2(1, 5, b"\x40trailer", flags=5)
    talk.says(14_000, http2(1, 1, OK) + http2(0, 3, b"x") + trailer)
    found = of(tmp_path, talk.packets)
    assert waits(found, "http") == [(10_000, 2_000), (10_000, 3_000), (10_000, 4_000)]


def test_a_long_header_of_http_2_counts_when_it_is_whole(tmp_path: Path) -> None:
    talk = Dialogue()
    talk.asks(10_000, OPENS + http2(1, 1, GET + b"x" * 900, flags=0)[:500])
    talk.asks(12_000, http2(1, 1, GET + b"x" * 900, flags=0)[500:])
    talk.asks(15_000, http2(9, 1, b"y" * 100))
    talk.says(19_000, http2(1, 1, OK))
    talk.asks(20_000, http2(1, 3, GET))
    talk.says(21_000, http2(3, 3, b"\0\0\0\7", flags=0))
    found = of(tmp_path, talk.packets)
    assert waits(found, "http") == [(15_000, 4_000)]
    assert (counts(found, "http").requests, counts(found, "http").refused) == (2, 1)


def test_http_2_whose_beginning_was_not_captured(tmp_path: Path) -> None:
    talk = Dialogue(opened=False)
    talk.says(5_000, b"rest of a frame")
    talk.asks(10_000, http2(8, 0, bytes(4), flags=0) + http2(1, 7, GET))
    talk.says(13_000, http2(1, 7, OK))
    assert waits(of(tmp_path, talk.packets), "http") == [(10_000, 3_000)]


def test_http_that_becomes_http_2(tmp_path: Path) -> None:
    talk = Dialogue()
    talk.asks(10_000, b"GET / HTTP/1.1\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n")
    switch = b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\n\r\n" + http2(4, 0) + http2(1, 1, OK)
    talk.says(12_000, switch[:-4])
    talk.says(12_500, switch[-4:])
    talk.asks(13_000, OPENS)
    talk.asks(14_000, http2(1, 3, GET))
    talk.says(17_000, http2(1, 3, OK))
    assert waits(of(tmp_path, talk.packets), "http") == [(10_000, 2_000), (14_000, 3_000)]


@pytest.mark.parametrize(
    ("request_line", "answered"),
    [
        ("PROPFIND /dav HTTP/1.1", True),
        ("BASELINE-CONTROL * HTTP/1.1", True),
        ("OPTIONS rtsp://192.0.2.53/s RTSP/1.0", False),
        ("INVITE sip:b@192.0.2.53 SIP/2.0", False),
        ("RETR /a/file", False),
    ],
)
def test_what_is_http_shows_by_its_version(
    request_line: str, answered: bool, tmp_path: Path
) -> None:
    talk = Dialogue()
    talk.asks(10_000, f"{request_line}\r\n".encode()[:9])
    talk.asks(10_500, f"{request_line}\r\n".encode()[9:] + b"\r\n")
    talk.says(12_000, b"HTTP/1.1 207 Multi-Status\r\nContent-Length: 0\r\n\r\n")
    found = of(tmp_path, talk.packets)
    assert ("http" in found) == answered
    assert ("http" in [kind.kind for kind in found.kinds]) == answered
    if answered:
        assert waits(found, "http") == [(10_500, 1_500)]


@pytest.mark.parametrize("snap", [96, 160, 512])
def test_headers_that_were_cut_count_by_their_packets(snap: int, tmp_path: Path) -> None:
    talk = Dialogue()
    cookie = b"Cookie: " + b"c" * 900
    for number in range(20):
        time = 10_000 * (1 + number)
        talk.asks(time, b"GET /%d HTTP/1.1\r\n%s\r\n\r\n" % (number, cookie))
        head = b"HTTP/1.1 200 OK\r\nSet-%s\r\nContent-Length: 1200\r\n\r\n" % cookie
        talk.says(time + 3_000 + number, head)
        talk.says(time + 4_000, b"x" * 600)
        talk.says(time + 5_000, b"x" * 600)
    found = evaluate_transactions(written(tmp_path, talk.packets, snap=snap))
    assert waits(found, "http") == [(10_000 * (1 + n), 3_000 + n) for n in range(20)]
    assert counts(found, "http").cut == 40
    assert "snap-length" in [warning.code for warning in found.kinds[-1].warnings]


def test_tcp_fast_open(tmp_path: Path) -> None:
    ask, answer = b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 204 No\r\n\r\n"
    behind = 1_001 + len(ask)
    packets = [
        (0, tcp(True, 1_000, 0, ask, SYN)),
        (300, tcp(False, 9, behind, b"", SYN | ACK)),
        (400, tcp(True, behind, 10)),
        (900, tcp(False, 10, behind, answer)),
        # This server takes no data with a SYN.
        (2_000, tcp(True, 5_000, 0, ask, SYN, (40_001, 443))),
        (2_500, tcp(False, 9, 5_001, b"", SYN | ACK, (40_001, 443))),
    ]
    found = of(tmp_path, packets)
    assert waits(found, "tcp-handshake") == [(0, 300), (2_000, 500)]
    assert waits(found, "http") == [(0, 900)]


def test_a_handshake_whose_answer_was_not_captured_is_given_up(tmp_path: Path) -> None:
    first, other = Dialogue((40_000, 80)), Dialogue((40_001, 80))
    found = of(tmp_path, [first.packets[0], *first.packets[2:], *other.packets], window_ns=2_500)
    told = counts(found, "tcp-handshake")
    assert (told.requests, told.answered, told.given_up, told.unanswered) == (2, 1, 1, 0)


def test_a_packet_may_claim_to_be_longer_than_its_frame(tmp_path: Path) -> None:
    talk = Dialogue((40_000, 80))
    talk.asks(10_000, b"GET / HTTP/1.1\r\n\r\n")
    talk.says(13_000, b"HTTP/1.1 204 No\r\n\r\n")
    longer = []
    for time, data in talk.packets:
        claimed = int.from_bytes(data[16:18], "big") + 4_000
        longer.append((time, data[:16] + claimed.to_bytes(2, "big") + data[18:]))
    assert waits(of(tmp_path, longer), "http") == [(10_000, 3_000)]


def test_a_byte_that_asks_whether_the_end_is_there(tmp_path: Path) -> None:
    probe = tcp(True, 999, 500, b"\0", ports=(40_000, 80))
    packets = [
        (0, probe),
        (10, tcp(False, 500, 1_000, ports=(40_000, 80))),
        (100, tcp(True, 1_000, 500, b"GET / HTTP/1.1\r\n\r\n", ports=(40_000, 80))),
        (700, tcp(False, 500, 1_018, b"HTTP/1.1 204 No\r\n\r\n", ports=(40_000, 80))),
    ]
    assert waits(of(tmp_path, packets), "http") == [(100, 600)]


def test_what_is_held_behind_a_gap_keeps_its_time(tmp_path: Path) -> None:
    talk = Dialogue((40_000, 80))
    for number in range(3):
        talk.asks(10_000 * (number + 1), b"GET / HTTP/1.1\r\n\r\n")
        talk.says(10_000 * (number + 1) + 500, b"HTTP/1.1 204 No\r\n\r\n")
    late = max(time for time, _ in talk.packets)
    # The first request and its response are missing, and nobody acknowledges anything for long.
    packets = [*talk.packets[:3], *talk.packets[5:]]
    packets.append((late + 90_000, tcp(True, talk.numbers[True], talk.numbers[False], b"",
                                       ports=(40_000, 80))))  # fmt: skip
    assert waits(of(tmp_path, packets), "http") == [(20_000, 500), (30_000, 500)]


def test_a_hello_in_several_records(tmp_path: Path) -> None:
    talk = Dialogue()
    asked, said = hello(True)[5:], hello(False)[5:]
    talk.asks(10_000, record("handshake", asked[:9]))
    talk.asks(14_000, record("handshake", asked[9:]))
    talk.says(17_000, record("handshake", said[:30]))
    talk.says(19_000, record("handshake", said[30:]))
    assert waits(of(tmp_path, talk.packets), "tls-server-hello") == [(14_000, 5_000)]


def test_early_data_end_no_flight(tmp_path: Path) -> None:
    talk = Dialogue()
    talk.asks(10_000, hello(True) + record("data", b"early"))
    talk.says(12_000, hello(False, TLS_1_3))
    talk.asks(12_500, record("data", b"early as well"))
    talk.says(14_000, record("data", b"extensions, finished"))
    talk.asks(16_000, record("data", b"end of early data") + record("data", b"finished"))
    talk.says(30_000, record("data", b"the answer"))
    found = of(tmp_path, talk.packets)
    assert waits(found, "tls-flight") == [(10_000, 4_000)]
    assert waits(found, "tls-first-data") == [(10_000, 20_000)]


@pytest.mark.parametrize("lost", range(3, 8))
def test_of_tls_nothing_is_told_that_a_gap_may_hide(lost: int, tmp_path: Path) -> None:
    talk = Dialogue()
    talk.asks(10_000, hello(True))
    talk.says(12_000, hello(False, TLS_1_3) + record("data", b"e" * 100)[:60])
    talk.says(13_000, record("data", b"e" * 100)[60:] + record("data", b"finished"))
    talk.asks(15_000, record("data", b"finished"))
    talk.says(18_000, record("data", b"the answer"))
    talk.asks(20_000, record("data", b"another"))
    kept = [one for place, one in enumerate(talk.packets) if place != lost]
    found = of(tmp_path, kept)
    expected = {"tls-server-hello": 2_000, "tls-flight": 3_000, "tls-first-data": 8_000}
    for kind, wait in expected.items():
        told = waits(found, kind) if kind in found else []
        assert told in ([], [(10_000, wait)])
    if lost > 4:
        assert waits(found, "tls-server-hello") == [(10_000, 2_000)]


def test_what_is_behind_a_proxy_and_what_a_connection_becomes(tmp_path: Path) -> None:
    proxied = Dialogue(opened=False)
    proxied.asks(0, b"CONNECT a.example:443 HTTP/1.1\r\n\r\n")
    proxied.says(4_000, b"HTTP/1.1 200 OK\r\n\r\n")
    proxied.asks(5_000, hello(True))
    proxied.says(8_000, hello(False))
    upgraded = Dialogue((40_001, 80))
    upgraded.asks(10_000, b"GET /socket HTTP/1.1\r\nUpgrade: websocket\r\n\r\n")
    upgraded.says(17_000, b"HTTP/1.1 101 Switching Protocols\r\n\r\n\x81\x05hello")
    found = of(tmp_path, proxied.packets + upgraded.packets)
    assert waits(found, "http") == [(0, 4_000), (10_000, 7_000)]
    assert waits(found, "tls-server-hello") == [(5_000, 3_000)]


PROXIED = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes(12)
GREETED = {
    "proxy-1": [(True, b"PROXY TCP4 192.0.2.1 192.0.2.2 40000 443\r\n")],
    "proxy-2": [(True, PROXIED)],
    "proxy-2-in-parts": [(True, PROXIED[:9]), (True, PROXIED[9:])],
    "smtp": [
        (False, b"220 mail\r\n"), (True, b"EHLO a.example\r\n"), (False, b"250 STARTTLS\r\n"),
        (True, b"STARTTLS\r\n"), (False, b"220 go\r\n"),
    ],
    "imap": [(False, b"* OK\r\n"), (True, b"a1 STARTTLS\r\n"), (False, b"a1 OK\r\n")],
    "postgresql": [(True, b"\0\0\0\x08\x04\xd2\x16\x2f"), (False, b"S")],
    "mysql": [
        (False, b"\x4a\0\0\0\x0a8.0" + bytes(70)),
        (True, b"\x20\0\0\1\x85\xae\xff\x19\0\0\0\1\xff" + bytes(23)),
    ],
    "socks": [
        (True, b"\5\1\0"), (False, b"\5\0"), (True, b"\5\1\0\1\xc0\0\2\1\1\xbb"),
        (False, b"\5\0\0\1" + bytes(6)),
    ],
}  # fmt: skip
"""What ends say before encryption begins, or HTTP."""


@pytest.mark.parametrize("name", GREETED)
def test_what_stands_before_a_request(tmp_path: Path, name: str) -> None:
    packets: Packets = []
    for port, request, answer in (
        (40_000, hello(True), hello(False)),
        (40_001, b"GET /a HTTP/1.1\r\n\r\n", b"HTTP/1.1 204 No\r\n\r\n"),
    ):
        talk = Dialogue((port, 8_000))
        for place, (asks, content) in enumerate(GREETED[name]):
            (talk.asks if asks else talk.says)(10_000 + 1_000 * place, content)
        talk.asks(30_000, request)
        talk.says(34_000, answer)
        packets += talk.packets
    found = of(tmp_path, packets)
    assert waits(found, "tls-server-hello") == [(30_000, 4_000)]
    # A mail may hold the text of a request; what a proxy passes on is one.
    through = name.startswith(("proxy", "socks"))
    assert ("http" in found) == through
    if through:
        assert waits(found, "http") == [(30_000, 4_000)]


def test_a_response_may_end_with_its_connection(tmp_path: Path) -> None:
    talk = Dialogue()
    talk.asks(10_000, b"GET / HTTP/1.0\r\n\r\n")
    talk.says(11_000, b"HTTP/1.0 200 OK\r\n\r\n")
    talk.says(12_000, b"HTTP/1.1 200 OK is part of the body\r\n\r\n")
    found = of(tmp_path, talk.packets)
    assert waits(found, "http") == [(10_000, 1_000)]
    assert counts(found, "http").unmatched_answers == 0


def test_answers_in_one_packet(tmp_path: Path) -> None:
    talk = Dialogue((40_000, 80))
    talk.asks(10_000, b"GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n")
    talk.says(12_000, b"HTTP/1.1 204 No\r\n\r\nHTTP/1.1 204 No\r\n\r\n")
    found = of(tmp_path, talk.packets)
    assert waits(found, "http") == [(10_000, 2_000)] * 2
    assert counts(found, "http").coalesced == 1
    assert {packet.key.rpartition(" ")[2] for packet in found["http"].worst()} == {"/a", "/b"}


def test_a_request_of_tcp_that_was_lost_on_the_way(tmp_path: Path) -> None:
    talk = Dialogue((40_000, 80))
    request = b"GET / HTTP/1.1\r\n\r\n"
    talk.asks(10_000, request)
    again = tcp(True, 1_001, talk.numbers[False], request, ports=(40_000, 80))
    talk.packets += [(210_000_000, again)]
    talk.says(211_000_000, b"HTTP/1.1 204 No\r\n\r\n")
    found = of(tmp_path, talk.packets)
    assert waits(found, "http") == [(10_000, 210_990_000)]
    assert counts(found, "http").retransmitted == 1
    assert waits(of(tmp_path, talk.packets, since="last"), "http") == [(210_000_000, 1_000_000)]


def test_quic_counts_from_the_first_initial(tmp_path: Path) -> None:
    packets = [
        (0, quic(True, b"destined", b"own")),
        (1_000, quic(True, b"destined", b"own")),
        (3_000, quic(False, b"own", b"servers", kind=2, length=200)),
        (4_000, quic(True, b"servers", b"own")),
        (4_500, quic(False, b"own", b"servers")),
        (9_000, quic(True, b"another1", b"", version=0x6B3343CF)),
        (9_900, quic(False, b"", b"servers", version=0x6B3343CF)),
    ]
    found = of(tmp_path, packets)
    assert waits(found, "quic-initial") == [(0, 3_000), (9_000, 900)]
    told = counts(found, "quic-initial")
    assert (told.requests, told.retransmitted, told.repeated_answers) == (2, 1, 0)


@pytest.mark.parametrize("port", [443, 4_433])
def test_quic_of_which_packets_were_not_captured(tmp_path: Path, port: int) -> None:
    def connection(start: int, client: bytes, number: int) -> Packets:
        made_up, server = b"made-up%d" % number, b"server-%d" % number
        return [
            (start, quic(True, made_up, client, port=port)),
            (start + 500, quic(False, client, server, port=port)),
            (start + 900, quic(True, server, client, port=port)),
        ]

    # Without an id of its own a client begins anew from the same port.
    packets = [one for n in range(3) for one in connection(10_000 * n, b"", n)]
    packets += connection(50_000, b"", 3)[1:] + connection(60_000, b"client-4", 4)[1:]
    asked, _, goes_on = connection(70_000, b"client-5", 5)
    packets += [asked, goes_on]
    retried = [
        (80_000, quic(True, b"made-up6", b"client-6", port=port)),
        (80_100, quic(False, b"client-6", b"retry-6!", kind=3, length=90, port=port)),
        (80_200, quic(True, b"retry-6!", b"client-6", port=port)),
        (80_700, quic(False, b"client-6", b"server-6", port=port)),
    ]
    found = of(tmp_path, packets + retried)
    expected = [(10_000 * n, 500) for n in range(3)] + [(80_000, 700)]
    assert waits(found, "quic-initial") == expected
    told = counts(found, "quic-initial")
    # What answers a request that was not captured is known by the server's port, or given up.
    unknown = port != 443
    assert (told.requests, told.given_up) == (5 + unknown, 1 + unknown)
    assert (told.unmatched_answers, told.repeated_answers) == (1 - unknown, 0)


def test_two_directions_of_a_link(tmp_path: Path) -> None:
    talk = Dialogue((40_000, 80))
    talk.asks(10_000, b"GET / HTTP/1.1\r\n\r\n")
    talk.says(12_500, b"HTTP/1.1 204 No\r\n\r\n")
    sides: tuple[Packets, Packets] = ([], [])
    for time, data in [*talk.packets, (5, ping(True, 1)), (65, ping(False, 1))]:
        sides[Ether(data)[IP].src != CLIENT].append((time, data))
    paths = [written(tmp_path, side, f"{place}.pcap") for place, side in enumerate(sides)]
    found = evaluate_transactions(*paths)
    assert waits(found, "http") == [(10_000, 2_500)]
    assert waits(found, "tcp-handshake") == [(0, 1_000)]
    assert waits(found, "icmp-echo") == [(5, 60)]
    assert "both-hold-requests" not in [warning.code for warning in found.warnings]
    with pytest.raises(NothingMatched, match="give the capture of the requests first"):
        evaluate_transactions(*reversed(paths))


def test_two_places_that_see_both_directions(tmp_path: Path) -> None:
    near = [(0, ping(True, 1)), (100, ping(False, 1))]
    far = [(20, ping(True, 1)), (70, ping(False, 1))]
    paths = [written(tmp_path, near, "near.pcap"), written(tmp_path, far, "far.pcap")]
    found = evaluate_transactions(*paths)
    assert waits(found, "icmp-echo") == [(0, 70)]
    assert [warning.code for warning in found.warnings] == ["both-hold-requests"]


def passed(wrap: Callable[[bool, bool, bytes], bytes]) -> Packets:
    """Requests and answers that pass a router, near the clients and far from them.

    `wrap` makes what is captured of a frame, by whether that is near and whether it asks.
    """
    packets: Packets = []
    for n in range(30):
        asks, says = (ping, dns)[n % 2], {}
        more = ("a.example",) if n % 2 else ()
        says = {way: asks(way, n, *more) for way in (True, False)}
        for near, way, time in (
            (True, True, 0), (False, True, 20), (False, False, 500), (True, False, 520),
        ):  # fmt: skip
            packets.append((n * 1_000 + time, wrap(near, way, says[way])))
    talk = Dialogue((40_000, 80))
    talk.asks(10_000, b"GET / HTTP/1.1\r\n\r\n")
    talk.says(12_500, b"HTTP/1.1 204 No\r\n\r\n")
    for time, data in talk.packets:
        way = Ether(data)[IP].src == CLIENT
        for near in (True, False):
            # The far place is 20 ns farther from the client.
            packets.append((time + 20 * (near != way), wrap(near, way, data)))
    return packets


def cooked(near: bool, asks: bool, data: bytes) -> bytes:
    outgoing = 4 * (near != asks)
    return struct.pack(">HHH8sH", outgoing, 1, 6, bytes(8), 0x0800) + data[14:]


def cooked_2(near: bool, asks: bool, data: bytes) -> bytes:
    outgoing = 4 * (near != asks)
    return struct.pack(">HHIHBB8s", 0x0800, 0, 3 - near, 1, outgoing, 6, bytes(8)) + data[14:]


def tagged(near: bool, asks: bool, data: bytes) -> bytes:
    return data[:12] + (b"\x81\0\0\5" if near else b"") + data[12:]


def on_links(near: bool, asks: bool, data: bytes) -> bytes:
    host, router = b"\2\0\0\0\0" + bytes([near]), b"\2\0\0\0\1" + bytes([near])
    return (router + host if near == asks else host + router) + data[12:]


@pytest.mark.parametrize(
    ("wrap", "linktype", "places"),
    [
        (cooked_2, 276, ("interface-2", "interface-3")),
        (cooked, 113, ("received", "sent")),
        (tagged, 1, ("vlan-5", "others")),
        (on_links, 1, ("mac-020000000101", "mac-020000000100")),
    ],
)
def test_waits_are_those_of_a_place(
    tmp_path: Path, wrap: Callable[[bool, bool, bytes], bytes], linktype: int, places: Sequence[str]
) -> None:
    path = written(tmp_path, passed(wrap), linktype=linktype)
    found = evaluate_transactions(path)
    assert "several-places" in [warning.code for warning in found.warnings]
    for place, wait in zip(places, (520, 480), strict=True):
        for kind in ("icmp-echo", "dns"):
            latencies = [wait for _, wait in waits(found, f"{kind}@{place}")]
            assert latencies == [wait] * 15
        told = next(one.counts for one in found.kinds if one.name == f"dns@{place}")
        assert (told.requests, told.retransmitted, told.repeated_answers) == (15, 0, 0)
    assert [waits(found, f"http@{place}")[0][1] for place in places] == [2_520, 2_480]
    found.write(tmp_path / "out")
    assert (tmp_path / "out" / f"dns@{places[1]}" / "evaluation.json").is_file()


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


@pytest.mark.parametrize("every", [1, 4])
def test_copies_that_mirror_ports_make_are_no_requests(tmp_path: Path, every: int) -> None:
    packets: Packets = []
    requests: dict[str, int] = {}
    for number in range(40):
        pairs = [
            *datagrams(number),
            ("ntp", time_packet(True, 0, 0, 0), time_packet(False, 0, 9, 9)),
        ]
        for place, (kind, request, answer) in enumerate(pairs):
            time = number * 20_000_000 + place * 100_000
            times = (0, 40_000) if number % every == 0 else (0,)
            packets += [(time + later, request) for later in times]
            packets += [(time + later + 30_000, answer) for later in times]
            requests[kind] = requests.get(kind, 0) + 1
    for since in ("first", "last"):
        found = of(tmp_path, packets, since=since)
        assert "copies" in [warning.code for warning in found.warnings]
        for kind, count in requests.items():
            assert [wait for _, wait in waits(found, kind)] == [30_000] * count
            told = counts(found, kind)
            assert (told.requests, told.retransmitted, told.repeated_answers) == (count, 0, 0)


def test_an_id_at_a_place(tmp_path: Path) -> None:
    def message(asks: bool, number: int) -> bytes:
        return udp(asks, (7_000, 7_001), Raw(number.to_bytes(2, "big") + (b"?" if asks else b"!")))

    packets = [
        (0, message(True, 1)), (100, message(True, 2)), (150, message(True, 2)),
        (400, message(False, 2)), (500, message(False, 1)), (600, message(True, 1)),
        (900, message(False, 1)), (950, message(False, 1)),
    ]  # fmt: skip
    found = of(tmp_path, packets, key="42:2:be")
    assert waits(found, "field") == [(0, 500), (100, 300), (600, 300)]
    told = counts(found, "field")
    assert (told.retransmitted, told.repeated_answers, told.reordered) == (1, 1, 1)
    with pytest.raises(InputError, match="is of packets"):
        of(tmp_path, packets, key="packet-nat")


def test_an_id_that_answers_have_elsewhere(tmp_path: Path) -> None:
    """As of STAMP (RFC 8762): a reflector sends a number of its own, and behind it the sender's."""

    def message(asks: bool, number: int, asked: int = 0) -> bytes:
        content = number.to_bytes(4, "big") + bytes(20) + asked.to_bytes(4, "big")
        return udp(asks, (50_700, 862), Raw(content))

    packets: Packets = []
    reflected = 0
    for number in range(20):
        if number % 5 != 1:
            packets.append((number * 1_000, message(True, number)))
        if number % 5 != 2:
            packets.append((number * 1_000 + 700, message(False, reflected, number)))
            reflected += 1
    found = of(
        tmp_path, packets, key="udp.payload+0:4:be", key_after="udp.payload+24:4:be", window_ns=900
    )
    answered = [number for number in range(20) if number % 5 not in (1, 2)]
    assert waits(found, "field") == [(number * 1_000, 700) for number in answered]
    told = counts(found, "field")
    assert (told.requests, told.unanswered, told.unmatched_answers) == (16, 4, 4)


def test_requests_at_the_start_are_trimmed(tmp_path: Path) -> None:
    packets = [(n * 1_000, ping(True, n)) for n in range(10)]
    packets += [(n * 1_000 + 100 + n, ping(False, n)) for n in range(10)]
    found = of(tmp_path, packets, trim_ns=3_500)
    assert waits(found, "icmp-echo") == [(n * 1_000, 100 + n) for n in range(4, 10)]
    assert counts(found, "icmp-echo").trimmed == 4


def test_what_is_no_request_at_all(tmp_path: Path) -> None:
    with pytest.raises(NothingMatched, match="no request with an answer of a known kind"):
        of(tmp_path, [(0, sent(True, UDP(sport=5, dport=6), Raw(b"x" * 40)))])


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    packets = [(n * 1_000, ping(True, n)) for n in range(10)]
    packets += [(n * 1_000 + 100 + n, ping(False, n)) for n in range(10)]
    found = of(tmp_path, [*packets, (9_500, dns(True, 1, "a.example"))])
    out = tmp_path / "out"
    found.write(out)
    read = type(found["icmp-echo"]).load(out / "icmp-echo")
    assert read.counts == found["icmp-echo"].counts
    assert read.percentile(0.5) == found["icmp-echo"].percentile(0.5)
    assert not (out / "dns").exists(), "nobody answered"
    (record,) = [kind for kind in found.record().kinds if kind.kind == "dns"]
    assert record.latency_ns is None and record.counts.open_at_end == 1
    of(tmp_path, [(0, dns(True, 1, "a")), (5, dns(False, 1, "a"))]).write(out)
    assert (out / "dns").exists() and not (out / "icmp-echo").exists()
