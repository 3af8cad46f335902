"""Clients and servers whose every request, answer and packet has a known time."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import NamedTuple

import numpy as np

from tests.simulation import messages
from tests.simulation.draw import Draw
from tests.simulation.messages import ACK, FIN, ICMP, ICMPV6, RST, SYN, TCP, UDP, Ends
from tests.simulation.talks import (
    BEFORE,
    BODIES,
    PASSED_OVER,
    PROXIES,
    TALKS,
    Mark,
    Message,
    Rng,
    Style,
    Talk,
)

SPREAD_NS = 40_000_000
"""Conversations begin within this time."""
GAP_NS = 200_000
WAIT_NS = 1_000_000
MOST_SEGMENT = 1_448
DATAGRAMS = ("dns", "icmp-echo", "ntp", "ptp-delay", "gtp-u-echo", "quic-initial")
SHARED = {"ntp": "asks anew", "quic-initial": "asks instead"}
"""Kinds whose requests may lack an id: what a further one does."""
KINDS = (*DATAGRAMS, *TALKS, "no answers")


class Event(NamedTuple):
    """What a packet by itself asks or answers."""

    packet: int
    kind: str
    act: str
    """``asks``, ``answers``, ``refuses``, or ``passed``: its answer has passed."""
    key: Hashable
    needs: int = 0
    """So many bytes behind the header of its protocol must be captured."""


@dataclass
class Packet:
    """A packet at the tap."""

    time: int
    ends: Ends
    asks: bool
    protocol: int
    head: bytes
    payload: bytes

    def frame(self, number: int) -> bytes:
        if self.protocol == 0:
            return messages.ethernet(self.asks, b"\x88\xf7" + self.payload)
        return self.ends.frame(self.asks, self.protocol, self.head + self.payload, number)


@dataclass
class Exchange:
    """A request on a connection, and its answer; where both are in what their ends say."""

    kind: str
    asks: tuple[int, int]
    """The first byte of the message, and the number of bytes with which it is there."""
    heard: int
    """Where what its server said ended when it was sent."""
    upgraded: bool
    """Whether it is of HTTP/2 on a connection that may have begun with HTTP/1.1."""
    again: tuple[int, int] | None = None
    """Where it is repeated, as its server wants it so."""
    answers: tuple[int, int] | None = None
    refused: bool = False
    by_client: bool = False
    """Whether it was the client who withdrew it."""


class Segment(NamedTuple):
    """Bytes of an end in a packet."""

    packet: int
    asks: bool
    begin: int
    end: int


@dataclass
class Connection:
    """A connection of TCP."""

    segments: list[Segment] = field(default_factory=list)
    packets: list[int] = field(default_factory=list)
    probes: dict[int, int] = field(default_factory=dict)
    """The packet with the byte of a probe, by what of the client's bytes comes next."""
    exchanges: list[Exchange] = field(default_factory=list)
    said: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    answer: int = -1
    """The packet that answers the SYN."""
    plain: bool = True
    """Whether each message is in segments of its own, in order, once."""
    ordered: bool = False
    """Whether only their order tells which answer is of which request."""
    pipelined: bool = False
    overtaken: bool = False
    hidden: bool = False
    """Whether bytes of its first request may come before what shows that it is one."""
    lookalikes: int = 0
    """What the client says that looks like requests of HTTP, and is none."""


@dataclass
class World:
    """All packets, and what they are."""

    packets: list[Packet] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    connections: list[Connection] = field(default_factory=list)
    quic: list[int] = field(default_factory=list)
    """The numbers of the packets that open connections of QUIC."""

    def send(
        self, time: float, ends: Ends, asks: bool, protocol: int, head: bytes, payload: bytes = b""
    ) -> int:
        self.packets.append(Packet(round(time), ends, asks, protocol, head, payload))
        return len(self.packets) - 1

    def order(self) -> list[int]:
        """The numbers of the packets in the order of time."""
        return sorted(range(len(self.packets)), key=lambda number: self.packets[number].time)

    def space(self, unit: int, start: int) -> None:
        """Makes `unit` ns of a microsecond, and moves packets so that they are four units apart."""
        latest = 0
        for number in self.order():
            latest = max(latest + 4, self.packets[number].time // 1_000)
            self.packets[number].time = start + latest * unit


@dataclass(frozen=True)
class Conversation:
    """A client and its server, and what is drawn of them."""

    world: World
    draw: Draw
    kind: str
    number: int
    """Of each client its own."""
    rng: Rng
    ends: Ends
    features: Collection[str]

    def some(self, feature: str, chance: float = 0.5) -> bool:
        """Whether a feature of the world is one of this conversation, or happens here."""
        drawn = self.rng.random() < chance
        return drawn and feature in self.features

    def count(self, what: str, most: int) -> int:
        return self.draw.count(f"{what} of {self.kind}", 1, most)


def datagrams(of: Conversation) -> None:
    """A client that asks by datagrams, at any time."""
    rng, kind = of.rng, of.kind
    again = int(rng.integers(2, 5)) if of.some("ids used again") else 0
    variant = int(rng.integers(3))
    serial = kind == "quic-initial" or (kind, variant) == ("ntp", 2)
    once = serial or (kind, variant) == ("ptp-delay", 0)
    if kind == "ntp" or once or (kind, variant) == ("dns", 2):
        again = 0
    time = float(rng.integers(SPREAD_NS))
    for at in range(of.count("requests", 40)):
        time += rng.exponential(GAP_NS)
        wait = 1_000 + rng.exponential(WAIT_NS)
        times = [(time, True)]
        if not of.some("lost answers", 0.1):
            times.append((time + wait, False))
        more = [(time + rng.exponential(2 * WAIT_NS), True), (time + 2 * wait, False)]
        times += [one for one in more if of.some("sent again", 0.2) and not once]
        which = at % again if again else at
        for moment, asks in times:
            _datagram(of, moment, asks, which, variant)
        if kind == "quic-initial":
            _quic_more(of, times, which, variant)
        if serial:
            time += 4 * wait


def _datagram(of: Conversation, time: float, asks: bool, number: int, variant: int) -> None:
    kind, end = of.kind, of.number
    key: Hashable = (kind, end) if variant == 2 and kind in SHARED else (kind, end, number)
    protocol, ports, needs = UDP, (40_000 + end, 53), 8
    match kind:
        case "dns":
            # The same id with other questions, or errors that leave the question out.
            name = "A.eXample" if number % 2 or variant else f"n{number}.example"
            bare = variant == 2 and not asks
            changes = variant == 2 and number % 2 == 1
            ident = number if variant else number // 2
            name = "" if bare else name if asks else name.lower()
            payload = messages.dns_message(asks, ident, name, changes=changes)
            needs = 12 + (len(messages.labels(name)) + 4 if name else 0)
        case "icmp-echo":
            v6 = len(of.ends.client) == 16
            protocol, payload = (ICMPV6 if v6 else ICMP), messages.echo(asks, number, v6)
        case "ntp":
            ports, sent = (123, 123), 0xE0000000_00000000 + number * 4_000
            stamps = [(0, 0, sent), (sent - 9, sent - 5, sent), (0, 0, 0)][variant]
            origin = [sent, sent - 5, 0][variant]
            payload = messages.ntp(asks, *(stamps if asks else (origin, sent + 1, sent + 2)))
            needs = 48 if asks else 32
        case "ptp-delay":
            protocol, ports = (UDP if variant else 0), (319 + (not asks),) * 2
            payload = messages.ptp(asks, number, end)
            needs = 32 if asks else 54
        case "gtp-u-echo":
            ports, payload, needs = (ports[0], 2152), messages.gtp_u(asks, number), 10
        case _:
            ports, payload = (ports[0], 443 if variant else 4433), _quic(asks, number, end, variant)
            needs = 7 + payload[5] + payload[6 + payload[5]]
    head = messages.udp_head(ports if asks else ports[::-1], len(payload))
    head = head if protocol == UDP else b""
    packet = of.world.send(time, of.ends, asks, protocol, head, payload)
    act = "asks" if asks else "answers"
    if variant == 2 and asks and kind in SHARED:
        act = SHARED[kind]
    of.world.events.append(Event(packet, kind, act, key, needs))
    if kind == "quic-initial":
        of.world.quic.append(packet)


def _quic_ids(number: int, end: int, variant: int) -> tuple[bytes, bytes, bytes, int]:
    """Connection ids: that made up for the server, and those that both chose; and the version."""
    own = b"" if variant == 2 else b"own%2d%3d" % (end, number)
    version = 0x6B3343CF if number % 3 == 2 else 1
    return b"madeup%2d%3d" % (end, number), own, b"server%2d%3d" % (end, number), version


def _quic(asks: bool, number: int, end: int, variant: int) -> bytes:
    made_up, own, chosen, version = _quic_ids(number, end, variant)
    if asks:
        return messages.quic(made_up, own, version=version)
    return messages.quic(own, chosen, 2 * (number % 2), version, 200 if number % 2 else 1200)


def _quic_more(
    of: Conversation, times: Sequence[tuple[float, bool]], number: int, variant: int
) -> None:
    """A Retry and another Initial before the answer, and what follows it."""
    answered = [time for time, asks in times if not asks]
    made_up, own, chosen, version = _quic_ids(number, of.number, variant)
    ports = (40_000 + of.number, 443 if variant else 4433)
    more = [(time + 500, True, messages.quic(chosen, own, version=version)) for time in answered]
    if of.rng.random() < 0.3 and answered:
        begin, wait = times[0][0], answered[0] - times[0][0]
        retry = b"retry-" + made_up[-5:]
        more += [
            (begin + wait / 3, False, messages.quic(own, retry, 3, version, 90)),
            (begin + wait / 2, True, messages.quic(retry, own, version=version)),
        ]
    for time, asks, payload in more:
        head = messages.udp_head(ports if asks else ports[::-1], len(payload))
        of.world.quic.append(of.world.send(time, of.ends, asks, UDP, head, payload))


def no_answers(of: Conversation) -> None:
    """What goes to groups of hosts, and what only looks like a request."""
    client = of.ends.client
    groups = Ends(client, b"\xe0\0\0\xfb" if len(client) == 4 else b"\xff\2" + bytes(14))
    name = messages.dns_message(True, 0, "printer.local")
    # A name of NetBIOS has the form of a question.
    netbios = messages.dns_message(True, of.number, "FAEDCACACACACACACACACACACACACACA")
    for to, ports, payload in (
        (groups, (5353, 5353), name), (of.ends, (137, 137), netbios), (of.ends, (5, 6), b"x" * 40),
    ):  # fmt: skip
        for _ in range(3):
            time = int(of.rng.integers(SPREAD_NS))
            of.world.send(time, to, True, UDP, messages.udp_head(ports, len(payload)), payload)


class Talking:
    """Makes the packets of a connection, one turn of its ends after the other."""

    def __init__(self, of: Conversation, port: int, time: float) -> None:
        self.of, self.rng, self.time = of, of.rng, time
        self.made = Connection()
        of.world.connections.append(self.made)
        self.ports = (port, int(of.rng.choice([80, 443, 53, 5000])))
        self.first = {True: int(of.rng.integers(2**32)), False: int(of.rng.integers(2**32))}
        """The numbers of the first bytes of both ends."""
        self.options = b"\1\1\x08\x0a" + bytes(8) if of.some("options of TCP") else b""
        self.acks = float(of.rng.choice([0, 0.5, 1]))
        self.splits, self.joins, self.swaps, self.repeats = (
            of.some(one) for one in ("splits", "joins", "overtaking", "segments again")
        )
        self.made.plain = not (self.splits or self.joins or self.swaps or self.repeats)
        self.made.overtaken = self.swaps

    def wait(self) -> float:
        return float(1_000 + self.rng.exponential(WAIT_NS / 5))

    def send(self, asks: bool, flags: int, begin: int, payload: bytes, time: float) -> int:
        """A segment; `begin` is the place of its first byte in what its end says."""
        own, other = self.first[asks], self.first[not asks] + self.made.said[not asks]
        ports = self.ports if asks else self.ports[::-1]
        numbers = (own + begin, other if flags & ACK else 0)
        head = messages.tcp_head(ports, numbers, flags, self.options)
        packet = self.of.world.send(time, self.of.ends, asks, TCP, head, payload)
        self.made.packets.append(packet)
        if payload:
            self.made.segments.append(Segment(packet, asks, begin, begin + len(payload)))
        if asks and begin == 0 and not flags & SYN:
            self._event(packet, "passed")
        return packet

    def _event(self, packet: int, act: str) -> None:
        key = ("tcp-handshake", self.of.ends, self.ports, self.first[True])
        self.of.world.events.append(Event(packet, "tcp-handshake", act, key))

    def open(self, refused: bool, first: bytes, taken: bool) -> None:
        """The handshake; of TCP fast open the SYN has first bytes, which may not be taken."""
        for _ in range(1 + self.of.some("SYNs again", 0.3)):
            packet = self.send(True, SYN, -1, b"", self.time)
            self._event(packet, "asks")
            if first:
                self.of.world.packets[packet].payload = first
                self.made.segments.append(Segment(packet, True, 0, len(first)))
            self.time += self.wait()
        self.made.said[True] = len(first) if taken else 0
        flags = RST | ACK if refused else SYN | ACK
        packet = self.made.answer = self.send(False, flags, -1, b"", self.time)
        self._event(packet, "refuses" if refused else "answers")
        self.time += self.wait()

    def say(self, talk: Talk, before: int) -> None:
        """Each message, or those until the other end speaks; `before` were said already."""
        places = {True: 0, False: 0}
        keys: dict[Hashable, Exchange] = {}
        for _, turn in groupby(enumerate(talk), lambda one: one[1].asks if self.joins else one[0]):
            data = b""
            for number, message in turn:
                for mark in message.marks:
                    self.mark(message.asks, mark, places[message.asks], keys)
                self.made.lookalikes += message.asks * message.data.count(BODIES[1])
                places[message.asks] += len(message.data)
                data += message.data if number >= before else b""
            if data:
                self.burst(message.asks, places[message.asks] - len(data), data)

    def mark(self, asks: bool, mark: Mark, place: int, keys: dict[Hashable, Exchange]) -> None:
        if mark.act == "asks":
            upgraded = isinstance(mark.key, int) and mark.key < 0
            keys[mark.kind, mark.key] = Exchange(
                mark.kind, (place, place + mark.bytes), self.made.said[False], upgraded
            )
            self.made.exchanges.append(keys[mark.kind, mark.key])
        elif mark.act == "repeats":
            keys[mark.kind, mark.key].again = (place, place + mark.bytes)
        else:
            exchange = keys[mark.kind, mark.key]
            exchange.answers = (place, place + mark.bytes)
            exchange.refused = mark.act == "refuses"
            exchange.by_client = asks

    def burst(self, asks: bool, begin: int, data: bytes) -> None:
        """Bytes in segments, which may overtake one another or come again."""
        places = set(range(0, len(data), MOST_SEGMENT)) | {len(data)}
        if self.splits:
            places |= {int(place) for place in self.rng.integers(0, len(data), 3)}
        cuts = sorted(places)
        self.made.said[asks] = begin  # what is acknowledged meanwhile is not of this turn
        times = [float(one) for one in self.time + np.cumsum([self.wait() for _ in cuts[1:]])]
        if self.swaps:
            times = [float(one) for one in self.rng.permutation(times)]
        if self.of.some("probes", 0.2) and begin:
            probe = self.send(asks, ACK, begin - 1, b"\0", self.time + 500)
            self.made.segments.pop()
            self.made.probes |= {begin: probe} if asks else {}
        for time, first, last in zip(times, cuts, cuts[1:], strict=False):
            self.send(asks, ACK, begin + first, data[first:last], time)
            if self.repeats and self.rng.random() < 0.2:
                later = time + self.rng.exponential(2 * WAIT_NS)
                self.send(asks, ACK, begin + first, data[first:last], later)
        self.made.said[asks] = begin + len(data)
        self.time = max(times)
        if self.rng.random() < self.acks:
            self.time += self.wait() / 4
            self.send(not asks, ACK, self.made.said[not asks], b"", self.time)
        self.time += self.wait()

    def close(self, flags: int) -> None:
        for asks in (True, False):
            self.send(asks, flags, self.made.said[asks], b"", self.time)
            self.made.said[asks] += 1
            self.time += self.wait()


def connections(of: Conversation) -> None:
    """A connection after the other of one client, from one port each or from the same."""
    same = of.some("ports used again")
    time = float(of.rng.integers(SPREAD_NS))
    for place in range(of.count("connections", 3)):
        talking = Talking(of, 50_000 + 7 * of.number + place * (not same), time)
        talk = _talk(of, talking.made)
        refused = of.some("refused connections", 0.2)
        fast = (
            of.some("fast open")
            and not refused
            and talk[0].asks
            and len(talk[0].data) < MOST_SEGMENT
        )
        taken = of.rng.random() < 0.5
        talking.open(refused, talk[0].data if fast else b"", taken)
        if not refused:
            if not of.some("half-open"):
                talking.send(True, ACK, talking.made.said[True], b"", talking.time)
            talking.say(talk, int(fast and taken))
            if not of.some("left open"):
                talking.close(ACK | (RST if of.rng.random() < 0.2 else FIN))
        time = talking.time + 2 * WAIT_NS


def _talk(of: Conversation, made: Connection) -> Talk:
    most = int(of.rng.integers(2, 6)) if of.some("several at once") else 1
    made.pipelined, made.ordered = most > 1, of.kind == "http"
    before: tuple[tuple[bool, bytes], ...] = ()
    if of.kind in ("tls", "http") and of.some("words before"):
        name = str(of.rng.choice(list(BEFORE) if of.kind == "tls" else PROXIES))
        before, made.hidden = BEFORE[name], made.overtaken and name not in PASSED_OVER
    tables = of.some("statuses in tables")
    talk = TALKS[of.kind](Style(of.rng, of.count("requests", 12), most, tables))
    return [*(Message(*one) for one in before), *talk]


FEATURES = {
    "IPv6": 0.3, "tags and tunnels": 0.3, "ids used again": 0.3, "lost answers": 0.5,
    "sent again": 0.4, "options of TCP": 0.4, "splits": 0.4, "joins": 0.3, "overtaking": 0.3,
    "segments again": 0.3, "probes": 0.2, "SYNs again": 0.2, "ports used again": 0.3,
    "refused connections": 0.2, "fast open": 0.2, "half-open": 0.2, "left open": 0.3,
    "several at once": 0.4, "words before": 0.3, "statuses in tables": 0.2,
}  # fmt: skip
"""What conversations may have, and how many worlds do."""


def world(draw: Draw) -> World:
    """Conversations of some kinds, beside each other."""
    made = World()
    features = [name for name, chance in FEATURES.items() if draw.has(name, chance)]
    number = 0
    for kind in KINDS:
        if not draw.has(kind, 0.3):
            continue
        for which in range(draw.count(f"clients of {kind}", 1, 3)):
            number += 1
            rng = draw.stream(f"{kind} {which}")
            of = Conversation(made, draw, kind, number, rng, Ends(), features)
            v6, around = of.some("IPv6"), str(rng.choice(list(messages.AROUND)))
            around = around if of.some("tags and tunnels") else "Ethernet"
            client = b"\x20\1\x0d\xb8" + bytes(11) if v6 else bytes([192, 0, 2])
            server = b"\x20\1" + bytes(13) + b"\x09" if v6 else messages.SERVER
            of = replace(of, ends=Ends(client + bytes([100 + number]), server, around))
            make = datagrams if kind in DATAGRAMS else no_answers
            (connections if kind in TALKS else make)(of)
    return made
