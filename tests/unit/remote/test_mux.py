"""Frames: found in pieces of any size, and refused when they are none."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtap.remote.mux import (
    CLOSE,
    DATA,
    HEADER,
    HELLO,
    KINDS,
    LIMIT,
    OPEN,
    PIECE,
    PROTOCOL,
    WINDOW,
    WINDOW_BYTES,
    Channel,
    Decoder,
    Frame,
    Handler,
    Json,
    Mux,
    ProtocolError,
    as_bytes,
    encode,
)

NUMBERS = st.integers(0, 2**32 - 1)
FRAMES = st.builds(
    Frame, st.sampled_from(sorted(KINDS)), st.integers(0, 255), NUMBERS, st.binary(max_size=300)
)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """`data` cut at these places."""
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in itertools.pairwise(places)]


@given(FRAMES, st.binary(min_size=1), st.lists(st.integers(0, 10_000)))
def test_what_is_no_frame_is_refused_after_what_came_before_it(
    frame: Frame, garbage: bytes, cuts: list[int]
) -> None:
    wrong = bytes([garbage[0] | 0x80]) + garbage[1:]  # no kind has its highest bit set
    decoder = Decoder()
    found: list[Frame] = []
    with pytest.raises(ProtocolError, match="says what makes no sense: ") as caught:
        for piece in pieces(encode(*frame) + wrong, cuts):
            found.extend(decoder.feed(piece))
    assert found == [frame] or not found  # at the latest with the piece that holds the garbage
    assert "\n" not in str(caught.value)


def test_no_frame_is_longer_than_the_limit() -> None:
    with pytest.raises(ValueError, match="a frame of"):
        encode(ord("D"), 0, 1, bytes(LIMIT + 1))
    whole = encode(ord("D"), 0, 1, bytes(LIMIT))
    assert [len(frame.carried) for frame in Decoder().feed(whole)] == [LIMIT]
    with pytest.raises(ProtocolError, match="makes no sense"):
        list(Decoder().feed(HEADER.pack(ord("D"), 0, 1, LIMIT + 1)))


GREETING = encode(HELLO, 0, 0, as_bytes({"protocol": PROTOCOL}))


class Kept(Handler):
    def __init__(self, *, reads: bool = True) -> None:
        self.reads = reads
        self.streams: dict[int, bytes] = {}
        self.over: list[int] = []
        self.signals: list[int] = []
        self.results: list[Json] = []

    def received(self, channel: Channel, stream: int, data: bytes) -> None:
        self.streams[stream] = self.streams.get(stream, b"") + data
        if self.reads:
            channel.grant(len(data), stream)

    def ended(self, channel: Channel, stream: int) -> None:
        self.over.append(stream)

    def signalled(self, channel: Channel, number: int) -> None:
        self.signals.append(number)

    def closed(self, channel: Channel, result: Json) -> None:
        self.results.append(result)


class Pair:
    def __init__(self) -> None:
        self.served: list[tuple[Channel, Kept, Json]] = []
        self.near = Mux()
        self.far = Mux({"keep": self._serve})

    def _serve(self, channel: Channel, content: Json) -> Handler:
        kept = Kept(reads=content.get("reads", True))
        self.served.append((channel, kept, content))
        return kept

    def open(self, *, near: Kept | None = None, reads: bool = True) -> tuple[Channel, Kept]:
        kept = near or Kept()
        return self.near.open("keep", kept, reads=reads), kept

    def pass_on(self, sizes: Iterator[int] | None = None) -> None:
        """Until neither has anything to say; in pieces of these sizes."""
        sizes = sizes or iter(lambda: 1 << 30, None)
        going = True
        while going:
            going = False
            for one, other in ((self.near, self.far), (self.far, self.near)):
                said = one.take()
                going |= bool(said)
                while said:
                    size = next(sizes)
                    piece, said = said[:size], said[size:]
                    other.receive(piece)


SAID = st.lists(
    st.tuples(st.integers(0, 2), st.booleans(), st.integers(0, 2), st.binary(max_size=40_000)),
    max_size=12,
)


@given(SAID, st.lists(st.integers(1, 50_000), min_size=1))
def test_interleaved_channels_keep_apart_and_in_order(
    said: list[tuple[int, bool, int, bytes]], sizes: list[int]
) -> None:
    pair = Pair()
    near = [pair.open() for _ in range(3)]
    wanted: dict[tuple[int, bool], dict[int, bytes]] = {}

    def all_sizes() -> Iterator[int]:
        while True:
            yield from sizes

    pair.pass_on(all_sizes())
    for place, from_near, stream, data in said:
        channel = near[place][0] if from_near else pair.served[place][0]
        channel.send(data, stream)
        if data:
            streams = wanted.setdefault((place, from_near), {})
            streams[stream] = streams.get(stream, b"") + data
    pair.pass_on(all_sizes())
    for place in range(3):
        pair.served[place][0].close(place=place)
    pair.pass_on(all_sizes())
    for place in range(3):
        assert pair.served[place][1].streams == wanted.get((place, True), {})
        assert near[place][1].streams == wanted.get((place, False), {})
        assert near[place][1].results == [{"place": place}]
    assert pair.near.take() == pair.far.take() == b""


@given(st.integers(0, 2_000))
def test_an_end_in_the_middle_ends_every_channel_once(kept_bytes: int) -> None:
    pair = Pair()
    channels = [pair.open() for _ in range(2)]
    for channel, _ in channels:
        channel.send(b"x" * 900)
    said = pair.near.take()
    pair.far.receive(said[:kept_bytes])
    pair.far.lose()
    pair.far.lose("twice")
    for _, kept, _ in pair.served:
        assert kept.results == [{"error": pair.far.over, "lost": True}]
    assert pair.far.over in ("", "ended within a message")
    if kept_bytes == 0 or kept_bytes >= len(said):
        assert pair.far.over == ""
    for channel, _, _ in pair.served:  # nobody is there to hear it, and nothing breaks
        channel.send(b"late")
        channel.close(exit=0)
        assert channel.room() == 0
    assert pair.far.take() == b""
    pair.near.lose()
    later = Kept()
    pair.near.open("keep", later)
    assert later.results == [{"error": "", "lost": True}]


def test_what_nobody_reads_stops_its_sender_and_nobody_else() -> None:
    pair = Pair()
    slow, _ = pair.open(reads=False)
    fast, _ = pair.open()
    pair.pass_on()
    slow.send(bytes(2 * WINDOW_BYTES), 0)
    slow.send(b"another stream", 1)
    fast.send(bytes(3 * WINDOW_BYTES))
    pair.pass_on()
    (far_slow, kept_slow, _), (_, kept_fast, _) = pair.served
    assert {key: len(value) for key, value in kept_slow.streams.items()} == {0: WINDOW_BYTES, 1: 14}
    assert len(kept_fast.streams[0]) == 3 * WINDOW_BYTES
    assert (slow.room(), slow.room(1), fast.room()) == (0, WINDOW_BYTES - 14, WINDOW_BYTES)
    slow.signal(15)  # goes ahead of what waits
    pair.pass_on()
    assert kept_slow.signals == [15]
    far_slow.grant(WINDOW_BYTES)
    pair.pass_on()
    assert len(kept_slow.streams[0]) == 2 * WINDOW_BYTES


def test_each_channel_gets_its_turn() -> None:
    pair = Pair()
    channels = [pair.open()[0] for _ in range(2)]
    pair.pass_on()
    for channel in channels:
        channel.send(bytes(4 * PIECE))
    pair.far.receive(pair.near.take())
    assert [len(kept.streams[0]) for _, kept, _ in pair.served] == [PIECE, PIECE]


def test_a_stream_ends_and_a_channel_closes_after_what_was_sent() -> None:
    pair = Pair()
    channel, kept = pair.open(near=Kept(reads=False))
    channel.end()
    pair.pass_on()
    far, far_kept, _ = pair.served[0]
    assert far_kept.over == [0]
    far.send(bytes(WINDOW_BYTES + 1), 1)
    far.end(1)
    far.close(exit=3)
    assert far.result == {"exit": 3}
    far.send(b"after the end", 1)
    pair.pass_on()
    assert (kept.over, kept.results) == ([], [])
    channel.grant(WINDOW_BYTES, 1)
    pair.pass_on()
    assert (len(kept.streams[1]), kept.over, kept.results) == (WINDOW_BYTES + 1, [1], [{"exit": 3}])


def test_an_abandoned_channel_is_over_at_both_ends_and_heard_of_no_more() -> None:
    pair = Pair()
    channel, kept = pair.open(near=Kept(reads=False))
    pair.pass_on()
    far, far_kept, _ = pair.served[0]
    far.send(bytes(2 * WINDOW_BYTES))
    channel.send(bytes(2 * WINDOW_BYTES))
    said = pair.far.take()
    channel.abandon()
    pair.near.receive(said)
    pair.pass_on()
    assert (kept.streams, kept.results) == ({}, [])
    assert far_kept.results == [{}]
    assert not pair.near.has(channel) and not pair.far.has(far)


OPENED = GREETING + encode(OPEN, 0, 1, b'{"kind":"keep"}')
UNREAD = GREETING + encode(OPEN, 0, 1, b'{"kind":"keep","reads":false}')
FULL = encode(DATA, 0, 1, bytes(PIECE)) * (WINDOW_BYTES // PIECE)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (encode(HELLO, 0, 0, b'{"protocol":2}'), "speaks version 2 of the protocol, this program"),
        (encode(HELLO, 0, 0, b"[]"), "says what is no JSON object"),
        (encode(HELLO, 0, 0, b"hello"), "says what is no JSON: b'hello'"),
        (encode(DATA, 0, 1, b"x"), "does not say hello first"),
        (GREETING + GREETING, "says hello twice"),
        (GREETING + encode(DATA, 0, 1, b"x"), "speaks of channel 1, which was never opened"),
        (OPENED + encode(OPEN, 0, 1, b"{}"), "opens channel 1, which it cannot"),
        (OPENED + encode(WINDOW, 0, 1, b"x"), "says a number in 1 bytes"),
        (UNREAD + FULL + encode(DATA, 0, 1, b"x"), "sends more than it may"),
        (OPENED + encode(CLOSE, 0, 1, b"x"), "says what is no JSON: b'x'"),
        (OPENED + b"raving\n", "says what makes no sense: 'raving'"),
    ],
)
def test_what_breaks_the_protocol_is_one_error_and_the_end(said: bytes, why: str) -> None:
    pair = Pair()
    with pytest.raises(ProtocolError) as caught:
        pair.far.receive(said)
    assert str(caught.value).startswith(why)
    assert pair.far.over == str(caught.value)
    assert "\n" not in str(caught.value)
    assert [kept.results for _, kept, _ in pair.served] in (
        [],
        [[{"error": str(caught.value), "lost": True}]],
    )


ANY_FRAME = st.tuples(
    st.sampled_from(sorted(KINDS)),
    st.integers(0, 3),
    st.integers(0, 3),
    st.sampled_from([b"", b"{}", b"[[", b"[" * 100_000, b'{"kind":"keep"}', bytes(4), b"\xff"])
    | st.binary(max_size=8),
)


@given(st.lists(ANY_FRAME, max_size=20), st.binary(max_size=20))
def test_whatever_is_said_is_an_answer_or_one_error(
    frames: list[tuple[int, int, int, bytes]], garbage: bytes
) -> None:
    for mux in (Pair().far, Pair().near):
        with contextlib.suppress(ProtocolError):
            mux.receive(GREETING + b"".join(encode(*frame) for frame in frames) + garbage)
        while mux.take():
            pass
