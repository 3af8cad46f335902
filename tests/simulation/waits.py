"""How long each request waits by what is in a capture: an oracle that knows what packets are."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tests.simulation.requests import Connection, Exchange, Segment, World

NEVER = np.iinfo(np.int64).max
ENOUGH = 64
"""So many first bytes of a packet show what it says."""
Times = Mapping[int, int]
"""When each packet was captured, by its number."""
Pair = tuple[int, int]
"""When a request was sent, and how long it waited."""


@dataclass(frozen=True)
class Rules:
    """What counts, as the user says."""

    window: int
    since: str
    cut: int
    """Requests before it are left out."""
    end: int
    """The last packet's time."""


class Moment(NamedTuple):
    time: int
    act: str
    key: Hashable


@dataclass
class Expected:
    """What is right of one kind."""

    pairs: Counter[Pair] = field(default_factory=Counter)
    """Those that are there for certain."""
    allowed: set[Pair] = field(default_factory=set)
    """Those that may be there."""
    free: set[int] = field(default_factory=set)
    """Times of requests whose pairs nobody can know."""
    counts: Counter[str] = field(default_factory=Counter)
    requests: list[int] = field(default_factory=lambda: [0, 0])
    """How many there are at least and at most."""
    exact: bool = True
    datagrams: bool = True


class _Open(NamedTuple):
    start: int
    answered: bool


def paired(
    moments: Iterable[Moment], rules: Rules, reuses: bool
) -> tuple[list[Pair], Counter[str]]:
    """Requests and answers as they come, each looked up by its key.

    `reuses` says whether a request with the key of one that was answered is another request.
    """
    pairs: list[Pair] = []
    counts: Counter[str] = Counter()
    known: dict[Hashable, _Open] = {}
    waiting: list[int] = []
    for time, act, key in sorted(moments, key=lambda one: one[0]):
        last = known.get(key)
        if last is not None and time - last.start >= rules.window:
            last = None
        open_ = last is not None and not last.answered
        if act == "asks again" and not open_:
            continue
        if act.startswith("asks"):
            if act == "asks instead" and open_:
                waiting.remove(known.pop(key).start)
                counts["given_up"] += 1
            asks = act in ("asks", "asks again")
            again = asks and last is not None and (open_ or not reuses)
            if not again:
                waiting.append(time)
                known[key] = _Open(time, False)
            elif open_ and rules.since == "last":
                waiting.remove(known[key].start)
                waiting.append(time)
                known[key] = _Open(time, False)
            counts["retransmitted" if again else "requests"] += 1
        elif act == "answers":
            if last is None:
                counts["unmatched_answers"] += 1
            elif last.answered:
                counts["repeated_answers"] += 1
            else:
                pairs.append((last.start, time - last.start))
                waiting.remove(last.start)
                known[key] = _Open(last.start, True)
        elif open_:
            waiting.remove(known.pop(key).start)
            counts["refused" if act == "refuses" else "given_up"] += 1
    for start in waiting:
        late = rules.end - start < rules.window
        name = "trimmed" if start < rules.cut else "open_at_end" if late else "unanswered"
        counts[name] += 1
    kept = [pair for pair in pairs if pair[0] >= rules.cut]
    counts["trimmed"] += len(pairs) - len(kept)
    counts["answered"] = len(kept)
    latest = 0
    for start, _ in sorted(kept, key=lambda pair: (sum(pair), pair[0])):
        counts["reordered"] += start < latest
        latest = max(latest, start)
    return kept, counts


def arrivals(made: Connection, asks: bool, times: Times) -> npt.NDArray[np.int64]:
    """When each byte of an end was captured first; one that was not, never."""
    length = max((one.end for one in made.segments if one.asks == asks), default=0)
    first = np.full(length, NEVER)
    for segment in made.segments:
        if segment.asks == asks and segment.packet in times:
            piece = first[segment.begin : segment.end]
            np.minimum(piece, times[segment.packet], out=piece)
    return first


class _Seen:
    """What a capture has of a connection."""

    def __init__(
        self, made: Connection, wire: Times, times: Times, shown: Mapping[int, int]
    ) -> None:
        self.made, self.times = made, times
        self.whole = all(packet in times for packet in made.packets)
        there = [one for one in made.segments if one.packet in times]
        self.cut = any(shown[one.packet] < one.end - one.begin for one in there)
        self.readable = all(shown[one.packet] >= min(one.end - one.begin, ENOUGH) for one in there)
        self.first = {asks: arrivals(made, asks, times) for asks in (True, False)}
        self.wire = {asks: arrivals(made, asks, wire) for asks in (True, False)}

    def time(self, asks: bool, end: int) -> int:
        """When the bytes before `end` were there, of those that were captured at all."""
        before = self.first[asks][:end]
        return int(before[before != NEVER].max(initial=0))

    def has(self, asks: bool, place: tuple[int, int]) -> bool:
        """Whether the packets with all of these bytes are in the capture."""
        return bool((self.first[asks][slice(*place)] != NEVER).all())

    def lacks(self, asks: bool, place: tuple[int, int]) -> bool:
        """Whether some of these bytes were not captured when they were first sent."""
        begin, end = place
        return not np.array_equal(self.first[asks][begin:end], self.wire[asks][begin:end])

    def overlapping(self, asks: bool, place: tuple[int, int]) -> list[Segment]:
        return [
            one
            for one in self.made.segments
            if one.asks == asks
            and one.packet in self.times
            and one.begin < place[1]
            and one.end > place[0]
        ]

    def hides(self, exchange: Exchange) -> bool:
        """Whether nothing may show how many requests wait in front of one: the connection's begin
        is missing, or a request with the one before it, or with the response to that.
        """
        before = self.made.exchanges[: self.made.exchanges.index(exchange) + 1]
        return self.made.packets[0] not in self.times or any(
            self.lacks(True, next_.asks)
            and (self.lacks(True, one.asks) or self.lacks(False, one.answers or (0, 0)))
            for one, next_ in pairwise(before)
        )

    def begun(self, exchange: Exchange) -> int:
        """When the answer began that ended with this one's: of a flight, the ServerHello."""
        hello = (one for one in self.made.exchanges if one.kind == "tls-server-hello")
        first = next(hello) if exchange.kind == "tls-flight" else exchange
        return self.time(first.by_client, first.answers[1]) if first.answers else NEVER

    def probed(self, exchange: Exchange) -> bool:
        """Whether a byte in front of a request may be a probe's or of a message."""
        place = exchange.asks[0]
        return self.made.probes.get(place) in self.times and not self.has(True, (place - 1, place))

    def may_be(self, asks: bool, place: tuple[int, int]) -> set[int]:
        """Times at which one may say that a message was there: with it, or with what comes before
        it and is captured only when it comes again.
        """
        wire = int(self.wire[asks][: place[1]].max())
        packets = {self.times[one.packet] for one in self.overlapping(asks, place)}
        before = self.first[asks][: place[1]]
        again = np.unique(before[(before > wire) & (before != NEVER)]).tolist()
        return packets | {wire, self.time(asks, place[1]) or wire, *again}


def _moments(seen: _Seen, at: int, exchange: Exchange) -> list[Moment]:
    """A request on a connection that is whole in the capture, and its answer."""
    start = seen.time(True, exchange.asks[1])
    times = [seen.times[one.packet] for one in seen.overlapping(True, exchange.asks)]
    moments = [Moment(start, "asks", at)]
    end = NEVER
    if exchange.answers is not None:
        end = seen.time(exchange.by_client, exchange.answers[1])
        moments.append(Moment(end, "refuses" if exchange.refused else "answers", at))
    begun = seen.begun(exchange)
    return moments + [Moment(time, "asks again", at) for time in times if start < time < begun]


def expected(
    made: World, wire: Times, times: Times, shown: Mapping[int, int], rules: Rules, later: Times
) -> dict[str, Expected]:
    """What is right of each kind; `wire` has the times of all packets, captured or not.

    `shown` says how many bytes behind the header of its protocol were captured of a packet, and
    `later` when else the client's packets were captured, which shows that these were sent.
    """
    right: defaultdict[str, Expected] = defaultdict(Expected)
    moments: defaultdict[str, list[Moment]] = defaultdict(list)
    for event in made.events:
        taken = (times, later) if event.act == "passed" else (times,)
        found = [one[event.packet] for one in taken if event.packet in one]
        if shown[event.packet] >= event.needs:
            moments[event.kind] += [Moment(time, event.act, event.key) for time in found]
    if not times.keys().isdisjoint(made.quic):
        moments["quic-initial"] += []
    for number, connection in enumerate(made.connections):
        seen = _Seen(connection, wire, times, shown)
        if connection.lookalikes and (seen.cut or not seen.whole):
            right["http"].requests[1] += connection.lookalikes
        for at, exchange in enumerate(connection.exchanges):
            one = right[exchange.kind]
            one.datagrams = False
            if seen.whole and not seen.cut and not connection.hidden:
                for moment in _moments(seen, at, exchange):
                    moments[exchange.kind].append(moment._replace(key=(number, at)))
            else:
                _partly(one, seen, exchange, rules)
    for kind, known in moments.items():
        one = right[kind]
        pairs, counts = paired(known, rules, kind != "tcp-handshake")
        one.counts = counts
        one.pairs.update(pairs)
        one.allowed.update(pairs)
        one.requests = [number + counts["requests"] for number in one.requests]
        if kind == "quic-initial" and any(packet not in times for packet in made.quic):
            # Nobody can tell which of a connection's first packets is missing.
            one.pairs, one.exact, one.requests = Counter(), False, [0, len(wire)]
            told = {event.packet for event in made.events}
            one.free = {times[packet] for packet in made.quic if packet in times} - {
                times[packet] for packet in told if packet in times
            }
    return dict(right)


def _partly(one: Expected, seen: _Seen, exchange: Exchange, rules: Rules) -> None:
    """A request of a connection that lacks packets, or their ends."""
    made = seen.made
    one.exact = False
    one.requests[1] += 1
    asked = seen.may_be(True, exchange.asks)
    if exchange.again is not None:
        asked |= seen.may_be(True, exchange.again)
    unknown = made.ordered and made.pipelined and seen.hides(exchange)
    if unknown or (seen.cut and not made.plain):
        # What the client sent before nobody knows, nor where a header goes on that was cut.
        one.free |= asked
        return
    clear = made.plain and seen.readable and not exchange.kind.startswith("tls")
    begun = made.packets[0] not in seen.times or made.answer in seen.times
    clear = clear and ((begun and not made.pipelined and not exchange.upgraded) or not made.ordered)
    # Words that were missed may have been a request.
    clear = clear and (not made.ordered or seen.has(True, (0, made.exchanges[0].asks[0])))
    clear = clear and not seen.probed(exchange)
    there = seen.has(True, exchange.asks)
    one.requests[0] += clear and there
    if exchange.answers is None or exchange.refused:
        return
    answered = seen.may_be(False, exchange.answers)
    one.allowed |= {(start, end - start) for start, end in product(asked, answered)}
    # Of what comes before an answer that only its place tells, interim ones too must be known.
    begin = min(exchange.heard, exchange.answers[0]) if made.ordered else exchange.answers[0]
    if clear and there and seen.has(False, (begin, exchange.answers[1])):
        start, end = seen.time(True, exchange.asks[1]), seen.time(False, exchange.answers[1])
        if rules.since == "last":
            again = [seen.times[piece.packet] for piece in seen.overlapping(True, exchange.asks)]
            start = max(time for time in (start, *again) if time < end)
        if start >= rules.cut and end - start < rules.window:
            one.pairs[start, end - start] += 1
