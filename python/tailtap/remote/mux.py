"""Frames and channels over one stream of bytes: what each end sends and receives, in memory alone.

One end opens channels, the other one serves them by their kinds. A channel carries streams of bytes
both ways, each of which ends alone; signals to the serving end; and at last its result, with which
the serving end closes it. The opening end can abandon a channel before.

Each stream has a window: nobody sends more than `WINDOW_BYTES` that the other end has not used up
yet. What is not read on one stream holds up none of the others, and takes no more memory than that.

A frame is a header of ten bytes and what it carries: one byte says its kind, one the stream of the
channel that it belongs to, four the number of the channel, four how many bytes follow; numbers have
their largest byte first. Kinds are letters, so that a dump of a stream can be read:

| kind | carries |
|---|---|
| H | hello: JSON, the first frame of each end, ``{"protocol": 1}`` |
| O | open: JSON, ``{"kind": NAME, ...}`` asks for a channel with this number |
| D | data: bytes of a stream of the channel |
| E | end: nothing more comes on this stream of the channel |
| W | window: four bytes; the other end may send so many bytes more on this stream |
| S | signal: four bytes, its number |
| X | close: JSON, the result of the channel; nothing more comes on any of its streams |

Frames carry bytes as they are: lines of JSON would hold files and output in base64, a third more of
them, to be encoded and searched for line ends inside of a guest that measures. A length in front
says at once where a frame ends, and a first byte that is no kind shows that something else speaks.

This file, `loop.py` and `agent.py` need the standard library only: they are what runs inside of a
virtual machine.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

Json = dict[str, Any]

PROTOCOL = 1
"""The version of the protocol; both ends need the same."""

WINDOW_BYTES = 262_144

PIECE = 32_768
"""Data of one frame, so that many channels get their turn."""

ONE_STREAM = 0
"""The stream of channels that have one each way."""

STATUS = 3
"""The exit status that an error stands for when nothing else is said: `MachineError`'s."""


class Handler:
    """What one end does with a channel. By itself it uses up everything and keeps nothing."""

    def received(self, channel: Channel, stream: int, data: bytes) -> None:
        """Bytes have come. The sender may go on when they are granted to it again."""
        channel.grant(len(data), stream)

    def ended(self, channel: Channel, stream: int) -> None:
        """Nothing more comes on this stream."""

    def signalled(self, channel: Channel, number: int) -> None:
        """The opening end sent a signal."""

    def roomy(self, channel: Channel, stream: int) -> None:
        """More can be sent on this stream than before."""

    def closed(self, channel: Channel, result: Json) -> None:
        """It is over: closed by the serving end with this result, abandoned by the opening one, or
        the other side is gone (``{"error": WHY, "lost": true}``).
        """


Serve = Callable[["Channel", Json], Handler]
"""Begins what a channel is opened for, with what came along."""


class Channel:
    """One end of a channel."""

    def __init__(self, mux: Mux, number: int) -> None:
        self.number = number
        self.handler = Handler()
        self.result: Json | None = None
        """What it was closed with by this end, as soon as it is."""
        self._mux = mux
        self._windows: dict[int, int] = {}
        self._waiting: dict[int, bytearray] = {}
        self._ending: list[int] = []
        self._granted: dict[int, int] = {}
        self._outstanding: dict[int, int] = {}
        self._over: set[int] = set()

    def send(self, data: bytes, stream: int = ONE_STREAM) -> None:
        """Send bytes as soon as the other end has room for them; they wait here until then."""
        if self._usable and data:
            self._waiting.setdefault(stream, bytearray()).extend(data)

    def end(self, stream: int = ONE_STREAM) -> None:
        """Say, after what was sent, that nothing more comes on this stream."""
        if self._usable:
            self._ending.append(stream)

    def room(self, stream: int = ONE_STREAM) -> int:
        """How many bytes can be sent now without waiting; zero when the channel is over."""
        left = self._window(stream) - len(self._waiting.get(stream, b""))
        return max(0, left) if self._usable else 0

    def signal(self, number: int) -> None:
        """Send a signal, ahead of any data."""
        if self._usable:
            self._mux.put(SIGNAL, 0, self.number, NUMBER.pack(number))

    def grant(self, count: int, stream: int = ONE_STREAM) -> None:
        """Say that `count` received bytes are used up, so that as many may follow."""
        granted = self._granted.get(stream, 0) + count
        # Not each time: a window that is a quarter used up does not hold up anybody.
        if granted >= WINDOW_BYTES // 4 and stream not in self._over and self._mux.has(self):
            self._mux.put(WINDOW, stream, self.number, NUMBER.pack(granted))
            self._outstanding[stream] = self._outstanding.get(stream, 0) - granted
            granted = 0
        self._granted[stream] = granted

    def close(self, **result: object) -> None:
        """As the serving end: tell the result after what was sent, and do nothing more."""
        if self._usable:
            self.result = result
            self.handler = Handler()

    def abandon(self) -> None:
        """As the opening end: end it; nothing that still comes from it is told."""
        if self._usable:
            self.result = {}
            self._drop()
            self._mux.put(CLOSE, 0, self.number, b"{}")
        self.handler = Handler()

    @property
    def _usable(self) -> bool:
        return self.result is None and self._mux.has(self)

    def _window(self, stream: int) -> int:
        return self._windows.get(stream, WINDOW_BYTES)

    def _drop(self) -> None:
        self._waiting.clear()
        self._ending.clear()

    # What follows is for the mux.

    def take(self) -> bytes:
        """The next piece that can be sent now; empty when there is none."""
        for stream, waiting in self._waiting.items():
            count = min(len(waiting), self._window(stream), PIECE)
            if count:
                piece = bytes(waiting[:count])
                del waiting[:count]
                self._windows[stream] = self._window(stream) - count
                return encode(DATA, stream, self.number, piece)
        for place, stream in enumerate(self._ending):
            if not self._waiting.get(stream):
                del self._ending[place]
                return encode(END, stream, self.number)
        is_waiting = self._ending or any(self._waiting.values())
        if self.result is not None and self._mux.serving and not is_waiting:
            self._mux.free(self)
            return encode(CLOSE, 0, self.number, as_bytes(self.result))
        return b""

    def took(self, frame: Frame) -> None:
        """Do what a frame says. Raises `ProtocolError`."""
        stream = frame.stream
        if frame.kind == DATA:
            outstanding = self._outstanding.get(stream, 0) + len(frame.carried)
            if outstanding > WINDOW_BYTES or stream in self._over:
                raise ProtocolError("sends more than it may")
            self._outstanding[stream] = outstanding
            self.handler.received(self, stream, frame.carried)
        elif frame.kind == END:
            self._over.add(stream)
            self.handler.ended(self, stream)
        elif frame.kind == WINDOW:
            self._windows[stream] = self._window(stream) + _number(frame)
            self.handler.roomy(self, stream)
        elif frame.kind == SIGNAL:
            self.handler.signalled(self, _number(frame))
        elif frame.kind == CLOSE:
            result, handler = as_json(frame), self.handler
            if self._mux.serving:
                self._drop()
                self.close()
            else:
                self._mux.free(self)
            handler.closed(self, result)


class Mux:
    """One end of a stream."""

    def __init__(self, serves: Mapping[str, Serve] | None = None) -> None:
        """The end that serves channels by their kinds, or, without `serves`, opens them."""
        self.serving = serves is not None
        self.greeted = False
        """Whether the other end has said hello."""
        self.over: str | None = None
        """Why nothing more comes or goes, as soon as that is so; empty for a plain end."""
        self._serves = serves or {}
        self._decoder = Decoder()
        self._first = bytearray(encode(HELLO, 0, 0, as_bytes({"protocol": PROTOCOL})))
        self._channels: dict[int, Channel] = {}
        self._last = 0

    def open(self, kind: str, handler: Handler, **content: object) -> Channel:
        """Ask for a channel. Raises `ValueError` when `content` has more bytes than a frame."""
        opening = as_bytes({"kind": kind, **content})
        self._last += 1
        channel = Channel(self, self._last)
        channel.handler = handler
        if self.over is None:
            self.put(OPEN, 0, channel.number, opening)
            self._channels[channel.number] = channel
        else:
            handler.closed(channel, _lost(self.over))
        return channel

    def receive(self, received: bytes) -> None:
        """Take what has come. Raises `ProtocolError`; the stream is over then."""
        try:
            for frame in self._decoder.feed(received):
                self._take(frame)
                if self.over is not None:
                    return
        except ProtocolError as error:
            self.lose(str(error))
            raise

    def lose(self, why: str = "") -> None:
        """The other side is gone: every channel is over."""
        if self.over is None:
            self.over = why or ("ended within a message" if self._decoder.within else "")
            channels = list(self._channels.values())
            self._channels.clear()
            self._first.clear()
            for channel in channels:
                channel.handler.closed(channel, _lost(self.over))

    def take(self) -> bytes:
        """The next bytes to send; empty when there are none now.

        What concerns channels as such goes ahead of their data, of which each sends a piece.
        """
        pieces = [bytes(self._first)]
        self._first.clear()
        pieces += [channel.take() for channel in list(self._channels.values())]
        return b"".join(pieces)

    # What follows is for channels.

    def put(self, kind: int, stream: int, channel: int, carried: bytes) -> None:
        """Send a frame ahead of all data."""
        self._first += encode(kind, stream, channel, carried)

    def has(self, channel: Channel) -> bool:
        """Whether a channel is not over."""
        return self._channels.get(channel.number) is channel

    def free(self, channel: Channel) -> None:
        """A channel is over."""
        self._channels.pop(channel.number, None)

    def _take(self, frame: Frame) -> None:
        if not self.greeted:
            self._greet(frame)
        elif frame.kind == HELLO:
            raise ProtocolError("says hello twice")
        elif frame.kind == OPEN:
            self._serve(frame)
        elif frame.channel > self._last:
            raise ProtocolError(f"speaks of channel {frame.channel}, which was never opened")
        else:
            channel = self._channels.get(frame.channel)
            if channel is not None:  # what was on its way when the channel ended is for nobody
                channel.took(frame)

    def _greet(self, frame: Frame) -> None:
        if frame.kind != HELLO:
            raise ProtocolError("does not say hello first")
        protocol = as_json(frame).get("protocol")
        if protocol != PROTOCOL:
            raise ProtocolError(
                f"speaks version {protocol} of the protocol, this program version {PROTOCOL}: "
                "install the same version of tailtap at both ends"
            )
        self.greeted = True

    def _serve(self, frame: Frame) -> None:
        if not self.serving or frame.channel <= self._last:
            raise ProtocolError(f"opens channel {frame.channel}, which it cannot")
        content = as_json(frame)
        self._last = frame.channel
        channel = self._channels[frame.channel] = Channel(self, frame.channel)
        serve = self._serves.get(str(content.get("kind")))
        if serve is None:
            channel.close(error=f"cannot be asked for {content.get('kind')!r}", status=STATUS)
        else:
            handler = serve(channel, content)
            if channel.result is None:
                channel.handler = handler


def as_bytes(content: Json) -> bytes:
    """JSON as bytes, without spaces."""
    return json.dumps(content, separators=(",", ":")).encode()


def as_json(frame: Frame) -> Json:
    """What a frame carries. Raises `ProtocolError` when it is no JSON object."""
    return parse(frame.carried)


def parse(said: bytes) -> Json:
    """The JSON object that somebody `said`. Raises `ProtocolError` when it is none."""
    try:
        content = json.loads(said)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"says what is no JSON: {said[:QUOTED]!r}") from error
    if not isinstance(content, dict):
        raise ProtocolError(f"says what is no JSON object: {said[:QUOTED]!r}")
    return content


def _number(frame: Frame) -> int:
    if len(frame.carried) != NUMBER.size:
        raise ProtocolError(f"says a number in {len(frame.carried)} bytes")
    number: int = NUMBER.unpack(frame.carried)[0]
    return number


def _lost(why: str) -> Json:
    return {"error": why, "lost": True}


HELLO, OPEN, DATA, END, WINDOW, SIGNAL, CLOSE = b"HODEWSX"

KINDS = frozenset(b"HODEWSX")

HEADER = struct.Struct(">BBII")

NUMBER = struct.Struct(">I")

LIMIT = 1 << 20
"""No frame carries more bytes; only what opens or closes a channel comes near it."""

QUOTED = 200
"""How many bytes of something else are quoted, to the end of the line."""


class ProtocolError(Exception):
    """The other end does not keep to the protocol; the message says what it did."""


class Frame(NamedTuple):
    """One frame."""

    kind: int
    stream: int
    channel: int
    carried: bytes


def encode(kind: int, stream: int, channel: int, carried: bytes = b"") -> bytes:
    """The bytes of a frame. Raises `ValueError` for more than `LIMIT` bytes."""
    if len(carried) > LIMIT:
        raise ValueError(f"a frame of {len(carried)} bytes: {LIMIT} is the limit")
    return HEADER.pack(kind, stream, channel, len(carried)) + carried


class Decoder:
    """Finds the frames in bytes that come in pieces of any size."""

    def __init__(self) -> None:
        self._received = bytearray()

    def feed(self, received: bytes) -> Iterator[Frame]:
        """The frames that are whole now; go through all of them.

        Raises `ProtocolError` at the first byte that cannot be the beginning of a frame.
        """
        self._received += received
        start = 0
        try:
            while start < len(self._received):
                if self._received[start] not in KINDS:
                    raise ProtocolError(f"says what makes no sense: {self._quoted(start)}")
                if len(self._received) < start + HEADER.size:
                    return
                kind, stream, channel, length = HEADER.unpack_from(self._received, start)
                if length > LIMIT:
                    raise ProtocolError(f"says what makes no sense: {self._quoted(start)}")
                end = start + HEADER.size + length
                if len(self._received) < end:
                    return
                carried = bytes(self._received[start + HEADER.size : end])
                start = end
                yield Frame(kind, stream, channel, carried)
        finally:
            del self._received[:start]

    @property
    def within(self) -> bool:
        """Whether the last frame has not come as a whole."""
        return bool(self._received)

    def _quoted(self, start: int) -> str:
        said = bytes(self._received[start : start + QUOTED]).partition(b"\n")[0]
        return repr(said.decode(errors="replace"))
