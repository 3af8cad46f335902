"""Frames: found in pieces of any size, and refused when they are none."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtap.remote.frames import HEADER, KINDS, LIMIT, Decoder, Frame, ProtocolError, encode

NUMBERS = st.integers(0, 2**32 - 1)
FRAMES = st.builds(
    Frame, st.sampled_from(sorted(KINDS)), st.integers(0, 255), NUMBERS, st.binary(max_size=300)
)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """`data` cut at these places."""
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in itertools.pairwise(places)]


@given(st.lists(FRAMES), st.lists(st.integers(0, 10_000)))
def test_frames_come_out_as_they_went_in_however_they_are_split(
    frames: list[Frame], cuts: list[int]
) -> None:
    decoder = Decoder()
    whole = b"".join(encode(*frame) for frame in frames)
    assert [found for piece in pieces(whole, cuts) for found in decoder.feed(piece)] == frames
    assert not decoder.within


@given(FRAMES, FRAMES, st.integers(1))
def test_a_truncated_end_is_noticed(first: Frame, second: Frame, missing: int) -> None:
    decoder = Decoder()
    last = encode(*second)
    kept = last[: len(last) - 1 - missing % len(last)]
    assert list(decoder.feed(encode(*first) + kept)) == [first]
    assert decoder.within == bool(kept)


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


def test_words_of_others_are_quoted() -> None:
    with pytest.raises(ProtocolError) as caught:
        list(Decoder().feed(b"bash: python3: command not found\n"))
    assert str(caught.value) == "says what makes no sense: 'bash: python3: command not found'"


def test_no_frame_is_longer_than_the_limit() -> None:
    with pytest.raises(ValueError, match="a frame of"):
        encode(ord("D"), 0, 1, bytes(LIMIT + 1))
    whole = encode(ord("D"), 0, 1, bytes(LIMIT))
    assert [len(frame.carried) for frame in Decoder().feed(whole)] == [LIMIT]
    with pytest.raises(ProtocolError, match="makes no sense"):
        list(Decoder().feed(HEADER.pack(ord("D"), 0, 1, LIMIT + 1)))
