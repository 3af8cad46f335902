"""HdrHistogram: its buckets, and its V2 encoding, as logs (`.hlog`) and TRex's results hold it.

A histogram of `digits` significant digits has buckets that are wider the higher they lie: with unit
magnitude u and 2^h sub-buckets in each half, the first 2^(h+1) are 2^u wide, each further 2^h twice
as wide as those before. The encoding is big-endian: a cookie and the length of what zlib made of a
cookie, the length of the counts, a normalizing offset, the digits, the lowest and the highest value
and a ratio; then the counts in the order of the buckets, each in zigzag LEB128 of at most nine
bytes, where a negative number is how many buckets in a row are empty.

https://github.com/HdrHistogram/HdrHistogram describes it. The package `hdrhistogram` was compared
with it: it allocates what a file asks for, and unpacks without a limit.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailtap.analysis.evaluation.values import summed

Integers = NDArray[np.int64]

INNER, OUTER = 0x1C849303, 0x1C849304
COOKIE = 0xFFFFFF0F
"""The bits of a cookie that say what follows; the others are a word's size."""
WORD = 0x10
HEADER = struct.Struct(">iiiiqqd")
FRAME = struct.Struct(">II")
MOST_BYTES = 16_000_000
MOST_BUCKETS = 1 << 26
DIGITS = 5


@dataclass(frozen=True)
class Buckets:
    """Those that something is in, ascending: their ends, both included, and how much."""

    low: Integers
    high: Integers
    count: Integers


def _halves(digits: int) -> int:
    """The logarithm of the sub-buckets in each half."""
    return math.ceil(math.log2(2 * 10**digits)) - 1


def encode(values: Integers, counts: Integers, digits: int = DIGITS) -> str:
    """The encoding of these values, ascending, with a resolution of one."""
    half = _halves(digits)
    exponent = np.maximum(np.frexp(values.astype(float))[1] - (half + 1), 0)
    places = ((exponent + 1) << half) + (values >> exponent) - (1 << half)
    used, totals = summed(places, counts)
    payload = bytearray()
    following = 0
    for place, count in zip(used.tolist(), totals.tolist(), strict=True):
        if place > following:
            payload += _zigzag(following - place)
        payload += _zigzag(count)
        following = place + 1
    highest = max(int(values[-1]), 2)
    header = HEADER.pack(INNER | WORD, len(payload), 0, digits, 1, highest, 1.0)
    packed = zlib.compress(header + bytes(payload))
    return base64.b64encode(FRAME.pack(OUTER | WORD, len(packed)) + packed).decode("ascii")


def decode(text: str) -> Buckets:
    """The buckets of an encoded histogram. Raises `ValueError`."""
    try:
        data = base64.b64decode(text.strip(), validate=True)
        cookie, length = FRAME.unpack_from(data)
        if cookie & COOKIE != OUTER & COOKIE:
            raise ValueError("it is no compressed histogram of HdrHistogram's version 2")
        stream = zlib.decompressobj()
        plain = stream.decompress(data[FRAME.size : FRAME.size + length], MOST_BYTES)
        if stream.unconsumed_tail:
            raise ValueError(f"a histogram of it holds more than {MOST_BYTES / 1e6:g} MB")
        if not stream.eof:
            raise ValueError("a histogram of it ends too early")
        inner, size, offset, digits, lowest, _, ratio = HEADER.unpack_from(plain)
    except (struct.error, zlib.error) as error:
        raise ValueError(f"a histogram of it is damaged: {error}") from error
    if inner & 0xFFFFFFFF & COOKIE != INNER & COOKIE or not 0 <= digits <= DIGITS or lowest < 1:
        raise ValueError("a histogram of it is damaged: its header says what none has")
    if offset or ratio != 1.0:
        raise ValueError("its histograms are shifted or of doubles, which are not read")
    places, counts = _counts(plain[HEADER.size : HEADER.size + size])
    unit, half = lowest.bit_length() - 1, _halves(digits)
    exponent = (places >> half) - 1
    sub = (places & ((1 << half) - 1)) + (1 << half)
    sub = np.where(exponent < 0, sub - (1 << half), sub)
    shift = np.maximum(exponent, 0) + unit
    if places.size and int(shift[-1]) + half + 1 > 62:
        raise ValueError("a histogram of it has values that no time reaches")
    low = sub << shift
    return Buckets(low, low + (np.int64(1) << shift) - 1, counts)


def _zigzag(number: int) -> bytes:
    rest = (number << 1) ^ (number >> 63)
    rest &= (1 << 64) - 1
    found = bytearray()
    while rest > 0x7F and len(found) < 8:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    found.append(rest)
    return bytes(found)


def _counts(payload: bytes) -> tuple[Integers, Integers]:
    """The places of buckets that something is in, and how much."""
    places, counts = [], []
    place = at = 0
    while at < len(payload):
        rest = 0
        for step in range(9):
            if at == len(payload):
                raise ValueError("a histogram of it ends within a number")
            byte = payload[at]
            at += 1
            rest |= (byte if step == 8 else byte & 0x7F) << (7 * step)
            if step == 8 or byte < 0x80:
                break
        number = (rest >> 1) ^ -(rest & 1)
        if number < 0:
            place -= number
        else:
            if number:
                places.append(place)
                counts.append(number)
            place += 1
        if place > MOST_BUCKETS or number >= 1 << 62:
            raise ValueError("a histogram of it has more buckets than any has")
    return np.array(places, np.int64), np.array(counts, np.int64)
