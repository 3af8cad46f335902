"""What is said on a connection of TCP, message by message, and what of it is asked and answered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tests.simulation import messages
from tests.simulation.messages import RETRY, TLS_1_3, hello, http2, record


class Mark(NamedTuple):
    """A request or its answer in a message: it is there with so many of its bytes."""

    kind: str
    key: object
    act: str
    """``asks``, ``repeats``, ``answers`` or ``refuses``."""
    bytes: int


@dataclass(frozen=True)
class Message:
    """What an end says before the other one need say anything."""

    asks: bool
    data: bytes
    marks: tuple[Mark, ...] = ()


Talk = list[Message]
Rng = np.random.Generator


class Style(NamedTuple):
    """How the ends of a connection talk."""

    rng: Rng
    requests: int
    """How many there are."""
    most: int = 1
    """How many of them wait at once."""
    tables: bool = False
    """Whether the status of an HTTP/2 answer may be in a table that nobody keeps."""


def turns(rng: Rng, asked: list[Message], answers: list[list[Message]], most: int) -> Talk:
    """Requests in order, each before its answers, of which as many as `most` wait at once."""
    said: Talk = []
    waiting: list[list[Message]] = []
    for message, answer in zip(asked, answers, strict=True):
        while len(waiting) >= most or (waiting and rng.random() < 0.3):
            said += waiting.pop(0)
        said.append(message)
        waiting.append(answer)
    return said + [message for answer in waiting for message in answer]


def dns(style: Style) -> Talk:
    rng, count, most, _ = style

    def message(asks: bool, number: int) -> Message:
        name = "" if not asks and number % 5 == 4 else f"{'wWw' if asks else 'www'}.example"
        content = messages.dns_message(asks, number, name)
        whole = len(content).to_bytes(2, "big") + content
        act = "asks" if asks else "answers"
        return Message(asks, whole, (Mark("dns", number, act, len(whole)),))

    asked = [message(True, number) for number in range(count)]
    answers = [[message(False, number)] for number in range(count)]
    places = shuffled(rng, count, most)
    return turns(
        rng, [asked[at] for at in places], answers=[answers[at] for at in places], most=most
    )


def shuffled(rng: Rng, count: int, most: int) -> list[int]:
    return [int(at) for at in (rng.permutation(count) if most > 1 else range(count))]


METHODS = ("GET", "POST", "HEAD", "PROPFIND", "BASELINE-CONTROL")
STATUSES = (
    "200 OK",
    "204 No Content",
    "304 Not Modified",
    "404 Not Found",
    "500 Error",
    "503 Busy",
)
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
BODIES = b"HTTP/1.1 200 OK\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", bytes(range(256)), b"text\r\n\r\n"


def body(rng: Rng) -> tuple[bytes, bytes]:
    """Lines of a header, and the body that follows from them."""
    content = BODIES[rng.integers(len(BODIES))] * int(rng.integers(0, 7))
    if rng.random() < 0.5:
        return b"Content-Length: %d\r\n" % len(content), content
    chunks = [content[at : at + 99] for at in range(0, len(content), 99)]
    coded = b"".join(b"%x;a=b\r\n%s\r\n" % (len(one), one) for one in chunks)
    return b"Transfer-Encoding: chunked\r\n", coded + b"0\r\n\r\n"


def http_request(rng: Rng, number: int, line: str = "", more: bytes = b"") -> tuple[str, Message]:
    method = line.split(maxsplit=1)[0] if line else METHODS[rng.integers(len(METHODS))]
    length, content = body(rng) if method in ("POST", "PROPFIND") else (b"", b"")
    cookie = b"Cookie: %s\r\n" % (b"c" * int(rng.integers(1, 300)))
    first = (line or f"{method} /{number} HTTP/1.1").encode()
    head = first + b"\r\n" + length + cookie + more + b"\r\n"
    return method, Message(True, head + content, (Mark("http", number, "asks", len(head)),))


def http_response(rng: Rng, number: int, method: str, status: str = "") -> list[Message]:
    status = status or STATUSES[rng.integers(len(STATUSES))]
    length, content = body(rng)
    bare = method == "HEAD" or status[:3] in ("204", "304", "101")
    head = f"HTTP/1.1 {status}\r\n".encode() + (b"" if status[:3] == "204" else length) + b"\r\n"
    answer = Message(False, head + content * (not bare), (Mark("http", number, "answers", 1),))
    return [Message(False, one) for one in INTERIM if rng.random() < 0.1] + [answer]


def http(style: Style) -> Talk:
    rng, count, most, _ = style
    asked, answers = [], []
    for number in range(count):
        method, request = http_request(rng, number)
        asked.append(request)
        answers.append(http_response(rng, number, method))
    return turns(rng, asked, answers, most) + AFTER[rng.integers(len(AFTER))](rng, count)


def _ends_with_connection(rng: Rng, number: int) -> Talk:
    _, request = http_request(rng, number, "GET / HTTP/1.0")
    answer = b"HTTP/1.0 200 OK\r\n\r\n" + BODIES[0] * 3
    return [request, Message(False, answer, (Mark("http", number, "answers", 1),))]


def _socket(rng: Rng, number: int) -> Talk:
    _, request = http_request(rng, number, "GET /s HTTP/1.1", b"Upgrade: websocket\r\n")
    answer = http_response(rng, number, "GET", "101 Switching")
    return [request, *answer, Message(False, b"\x81\x05hello"), Message(True, BODIES[1])]


def _upgrade(rng: Rng, number: int) -> Talk:
    lines = b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
    _, request = http_request(rng, number, "GET /2 HTTP/1.1", lines)
    switch = b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\n\r\n"
    answer = Message(False, switch + http2(4, 0), (Mark("http", number, "answers", 1),))
    return [
        request,
        answer,
        Message(False, http2(1, 1, b"\x88")),
        *streams(Style(rng, 4, 3), first=3),
    ]


def _tunnel(rng: Rng, number: int) -> Talk:
    _, request = http_request(rng, number, "CONNECT a.example:443 HTTP/1.1")
    answer = Message(False, b"HTTP/1.1 200 OK\r\n\r\n", (Mark("http", number, "answers", 1),))
    return [request, answer, *tls(Style(rng, 1))]


def _nothing(_rng: Rng, _number: int) -> Talk:
    return []


AFTER: tuple[Callable[[Rng, int], Talk], ...] = (
    *[_nothing] * 4, _ends_with_connection, _socket, _upgrade, _tunnel
)  # fmt: skip
"""What a connection ends with, or what becomes of it."""
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + http2(4, 0)
GET = b"\x82\x86\x84"
HINTS = b"\x48\x82\x08\x19", b"\x08\x03103", b"\xbe"
"""The status 103: by Huffman's code, plain, and by a table that nobody keeps."""
FINAL = b"\x88", b"\x8d", b"\x8e", b"\x48\x03503", b"\xbe"


def streams(style: Style, first: int = 1) -> Talk:
    """HTTP/2 without encryption: answers come in any order."""
    rng, count, most, tables = style
    asked, answers = [], []
    for number in range(count):
        stream = first + 2 * number
        asked.append(_opening(rng, stream))
        if rng.random() < 0.1:
            withdrawn = http2(3, stream, b"\0\0\0\7", 0)
            who = bool(rng.random() < 0.5)
            answers.append([Message(who, withdrawn, (Mark("http", -stream, "refuses", 13),))])
        else:
            answers.append(_answer(rng, stream, tables))
    said = turns(rng, asked, [answers[at] for at in range(count)], most)
    if most > 1:
        said = turns_in_any_order(rng, said)
    settings = [Message(False, http2(4, 0) + http2(8, 0, b"\0\0\1\0", 0))]
    return [Message(True, PREFACE), *settings, *said]


def turns_in_any_order(rng: Rng, said: Talk) -> Talk:
    """The same, with some answers of streams behind those that came after them."""
    for at in range(len(said) - 1):
        one, other = said[at : at + 2]
        if not one.asks and not other.asks and one.marks and other.marks and rng.random() < 0.4:
            said[at : at + 2] = [other, one]
    return said


def _opening(rng: Rng, stream: int) -> Message:
    block = GET + b"x" * int(rng.integers(0, 90))
    flags = 0x20 if rng.random() < 0.2 else 0
    head = (b"\0\0\0\0\x10" if flags else b"") + block
    cut = int(rng.integers(8, len(head))) if len(head) > 20 and rng.random() < 0.3 else len(head)
    data = http2(1, stream, head[:cut], flags | 4 * (cut == len(head)))
    if cut < len(head):
        data += http2(9, stream, head[cut:], 4)
    more = http2(0, stream, b"y" * int(rng.integers(0, 400)), 1) if rng.random() < 0.3 else b""
    return Message(True, data + more, (Mark("http", -stream, "asks", len(data)),))


def _answer(rng: Rng, stream: int, tables: bool) -> list[Message]:
    hints = [HINTS[rng.integers(2 + tables)]] * int(rng.random() < 0.2)
    status = FINAL[rng.integers(4 + tables)]
    mark = (Mark("http", -stream, "answers", 1),)
    rest = http2(0, stream, b"HTTP/1.1 200 OK\r\n\r\n" * int(rng.integers(0, 20)), 0)
    if rng.random() < 0.3:
        rest += http2(1, stream, b"\x40trailer", 5)
    head = [Message(False, http2(1, stream, one)) for one in hints]
    return [*head, Message(False, http2(1, stream, status) + rest, mark)]


WAITS = "tls-server-hello", "tls-flight", "tls-first-data"


def tls(style: Style) -> Talk:
    """The opening of a connection of TLS."""
    return list(OPENINGS[style.rng.integers(len(OPENINGS))](style.rng))


def _hello(rng: Rng) -> Message:
    """A ClientHello, in several records or one."""
    whole = hello(True, b"\0\x15" + b"\0\x64" + bytes(100))
    cut = int(rng.integers(4, len(whole))) if rng.random() < 0.3 else len(whole)
    data = record("handshake", whole[:cut])
    data += record("handshake", whole[cut:]) if cut < len(whole) else b""
    return Message(True, data, tuple(Mark(kind, 0, "asks", len(data)) for kind in WAITS))


def _says(asks: bool, data: bytes, *kinds: str) -> Message:
    return Message(asks, data, tuple(Mark(kind, 0, "answers", len(data)) for kind in kinds))


def _tls_1_2(rng: Rng) -> Iterator[Message]:
    yield _hello(rng)
    yield _says(False, record("handshake", hello(False)), WAITS[0])
    yield Message(False, record("handshake", b"\x0b\0\1\0" + bytes(256)))
    yield _says(False, record("handshake", b"\x0e\0\0\0"), WAITS[1])
    finished = record("change", b"\1") + record("handshake", b"finished")
    yield Message(True, finished)
    yield Message(False, finished)
    yield Message(True, record("data", b"request"))
    yield _says(False, record("data", b"answer" * int(rng.integers(1, 400))), WAITS[2])


def _tls_1_3(rng: Rng) -> Iterator[Message]:
    yield _hello(rng)
    if rng.random() < 0.3:
        yield Message(False, record("handshake", hello(False, TLS_1_3, RETRY)))
        again = _hello(rng)
        yield replace(again, marks=tuple(mark._replace(act="repeats") for mark in again.marks))
    yield _says(False, record("handshake", hello(False, TLS_1_3)), WAITS[0])
    yield Message(False, record("change", b"\1") + record("data", b"certificate" * 90))
    yield _says(False, record("data", b"finished"), WAITS[1])
    yield Message(True, record("change", b"\1") + record("data", b"finished"))
    yield _says(False, record("data", b"ticket"), WAITS[2])
    yield Message(True, record("data", b"request"))
    yield Message(False, record("data", b"answer"))


def _early(rng: Rng) -> Iterator[Message]:
    first = _hello(rng)
    yield replace(first, data=first.data + record("data", b"early"))
    yield _says(False, record("handshake", hello(False, TLS_1_3)), WAITS[0])
    yield Message(True, record("data", b"early as well"))
    yield _says(False, record("data", b"extensions, finished"), WAITS[1])
    yield Message(True, record("data", b"end of early data") + record("data", b"finished"))
    yield _says(False, record("data", b"the answer"), WAITS[2])


def _refused(rng: Rng) -> Iterator[Message]:
    yield _hello(rng)
    refused = tuple(Mark(kind, 0, "refuses", 7) for kind in WAITS)
    yield Message(False, record("alert", b"\2\x28"), refused)


OPENINGS = (_tls_1_2, _tls_1_3, _early, _refused)
PROXIED = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes(12)
BEFORE: dict[str, tuple[tuple[bool, bytes], ...]] = {
    "proxy-1": ((True, b"PROXY TCP4 192.0.2.1 192.0.2.2 40000 443\r\n"),),
    "proxy-2": ((True, PROXIED),),
    "socks": (
        (True, b"\5\1\0"), (False, b"\5\0"), (True, b"\5\1\0\1\xc0\0\2\1\1\xbb"),
        (False, b"\5\0\0\1" + bytes(6)),
    ),
    "smtp": (
        (False, b"220 mail\r\n"), (True, b"EHLO a.example\r\n"), (False, b"250 STARTTLS\r\n"),
        (True, b"STARTTLS\r\n"), (False, b"220 go\r\n"),
    ),
    "imap": ((False, b"* OK\r\n"), (True, b"a1 STARTTLS\r\n"), (False, b"a1 OK\r\n")),
    "postgresql": ((True, b"\0\0\0\x08\x04\xd2\x16\x2f"), (False, b"S")),
    "mysql": (
        (False, b"\x4a\0\0\0\x0a8.0" + bytes(70)),
        (True, b"\x20\0\0\1\x85\xae\xff\x19\0\0\0\1\xff" + bytes(23)),
    ),
}  # fmt: skip
"""What ends say before encryption begins; a proxy's words come before HTTP, too."""
PROXIES = "proxy-1", "proxy-2", "socks"
PASSED_OVER = "proxy-1", "proxy-2", "mysql"
"""Words of a known length, for whose answer nobody waits."""
OTHERS = (
    ((True, b"OPTIONS rtsp://192.0.2.53/s RTSP/1.0\r\n\r\n"), (False, b"RTSP/1.0 200 OK\r\n\r\n")),
    ((True, b"INVITE sip:b@192.0.2.53 SIP/2.0\r\n\r\n"), (False, b"SIP/2.0 200 OK\r\n\r\n")),
    ((True, b"RETR /a/file\r\n"), (False, b"HTTP/1.1 200 OK\r\n\r\n")),
)
"""What is no request of a known kind."""
TALKS: dict[str, Callable[[Style], Talk]] = {
    "http": http,
    "http2": streams,
    "dns by tcp": dns,
    "tls": tls,
    "others": lambda style: [Message(*one) for one in OTHERS[style.rng.integers(3)]],
}
