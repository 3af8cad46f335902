"""Frames: pieces of bytes by which several channels share one stream.

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

This file, `mux.py`, `loop.py`, `files.py` and `agent.py` need the standard library
only: they are what runs inside of a virtual machine.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

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
        """Nothing has come yet."""
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
