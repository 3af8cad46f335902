"""Two clocks made up with a known difference: no interval is wider than what the packets leave
open."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog
from two_clocks import START_NS, Times, TwoClocks, random_clocks

from tailtap.analysis.clocks.alignment import (
    PIECE_NS,
    Alignment,
    Crossings,
    Piece,
    Stepped,
    align,
    matched,
)
from tailtap.base.errors import InputError

CASES = 100 if "CI" in os.environ else 1000


def packets(clocks: TwoClocks, seed: int, count: int) -> tuple[Crossings, Crossings]:
    """Packets there and back, at random times, with random delays."""
    random = np.random.default_rng(seed)
    sent, took = clocks.sent(random, count, (clocks.least_ns, clocks.mean_ns))
    left, back = clocks.sent(random, count, clocks.back_ns)
    return Crossings(sent, clocks.theirs(sent + took)), Crossings(left + back, clocks.theirs(left))


def case(seed: int, span_ns: int | None = None) -> TwoClocks:
    """Any clocks, over three pieces at most."""
    span = int(np.random.default_rng(seed).integers(10**7, 3 * PIECE_NS))
    return replace(random_clocks(seed), span_ns=span_ns or span)


def times_of(clocks: TwoClocks, count: int = 20) -> Times:
    return np.linspace(START_NS, START_NS + clocks.span_ns, count).astype(np.int64)


def within(found: Alignment, clocks: TwoClocks, times: Times) -> bool:
    """Whether the truth lies in the intervals, asked both ways."""
    least, most = found.ahead_ns(times)
    truth = clocks.theirs(times) - times
    earliest, latest = found.ours_ns(clocks.theirs(times))
    right = (least <= truth) & (truth <= most) & (earliest <= times) & (times <= latest)
    return bool(right.all())


def test_lines_are_as_near_as_they_say() -> None:
    """Their time said by ours, at any time of theirs, lies off by no more than the lines say; which
    is half of the interval where that is widest."""
    for seed in range(CASES):
        clocks = case(seed)
        found = align(*packets(clocks, seed, 40))
        ours = times_of(clocks, 50)
        theirs = clocks.theirs(ours)
        lines = found.lines(int(theirs[0]), int(theirs[-1]))
        told = exactly(lines.knots, theirs.tolist())
        off = max(abs(here - true) for here, true in zip(told, ours.tolist(), strict=True))
        assert off <= lines.within_ns, f"case {seed}: {clocks}"
        # The ends of the pieces are the widest places.
        joints = [theirs_of(piece, piece.from_ns) for piece in found.pieces[1:]]
        ends = [int(theirs[0]), int(theirs[-1]), *joints]
        earliest, latest = found.ours_ns(np.array(ends))
        assert lines.within_ns <= int((latest - earliest).max()) // 2 + 3, f"case {seed}"


def theirs_of(piece: Piece, ours: int) -> int:
    """About what their clock shows when ours shows this."""
    return ours + int(piece.ahead_ns(np.array([ours]))[0][0])


def exactly(knots: Sequence[tuple[int, int]], times: list[int]) -> list[int]:
    """Times on the lines between knots, rounded down, by whole numbers."""
    found = []
    for time in times:
        place = max(bisect_right([knot[0] for knot in knots], time) - 1, 0)
        (r0, s0), (r1, s1) = knots[min(place, len(knots) - 2) :][:2]
        found.append(s0 + (time - r0) * (s1 - s0) // (r1 - r0))
    return found


def test_known_least_delays_make_it_narrower_and_still_right() -> None:
    for seed in range(50):
        clocks = case(seed, PIECE_NS)
        (there, back), times = packets(clocks, seed, 60), times_of(clocks)
        known = align(
            replace(there, least_ns=clocks.least_ns), replace(back, least_ns=clocks.back_ns[0])
        )
        assert within(known, clocks, times)
        assert known.widest_ns(times) < align(there, back).widest_ns(times)


def test_the_interval_is_what_the_packets_leave_open() -> None:
    """A linear programme, which knows of no corners, finds the same least and most."""
    for seed in range(CASES):
        there, back = packets(case(seed, PIECE_NS - 1), seed, 30)
        found = align(there, back)
        [piece] = found.pieces
        base = piece.offset_ns
        rows, limits = [], []
        for sign, side in ((1, there), (-1, back)):
            at = (side.ours_ns - piece.middle_ns) / 1e9
            bound = side.theirs_ns - side.ours_ns - base
            rows += [(sign, sign * one) for one in at.tolist()]
            limits += (sign * bound).tolist()
        time = (piece.from_ns, piece.middle_ns, piece.until_ns)[seed % 3]
        since = (time - piece.middle_ns) / 1e9
        ends = []
        for sign in (1, -1):
            told = linprog(
                [sign, sign * since], A_ub=rows, b_ub=limits, bounds=[(None, None), (-1e7, 1e7)]
            )
            assert told.success and told.fun is not None
            ends.append(sign * told.fun)
        least, most = found.ahead_ns(np.array([time]))
        scale = 3 + 1e-6 * (ends[1] - ends[0])
        assert abs(int(least[0]) - base - ends[0]) <= scale
        assert abs(int(most[0]) - base - ends[1]) <= scale


def test_even_clocks_are_known_to_the_round_trip() -> None:
    """With equal rates and constant delays nothing is open but how the round trip is shared."""
    found = align(*packets(TwoClocks(-77, 0.0, 300, 0, (9_000, 0), PIECE_NS - 1), 1, 5_000))
    least, most = found.ahead_ns(np.array([START_NS + PIECE_NS // 2]))
    assert 9_300 <= int(most[0] - least[0]) <= 9_304
    assert int(most[0]) + 77 in range(300, 303)


def test_a_step_is_refused() -> None:
    """One of four times what the packets leave open or more, at any time but the very ends."""
    for seed in range(CASES):
        random = np.random.default_rng(seed)
        clocks = case(seed, int(random.integers(10**7, 3 * PIECE_NS)))
        open_ns = align(*packets(clocks, seed, 60)).widest_ns(times_of(clocks))
        step = int(random.choice([-1, 1]) * open_ns * 4 * 10 ** random.uniform(0, 3))
        stepped = replace(clocks, step_ns=step, step_at=random.uniform(0.1, 0.9))
        with pytest.raises(Stepped, match="stepped"):
            align(*packets(stepped, seed, 60))


def test_one_way_tells_nothing() -> None:
    there, back = packets(case(1, PIECE_NS), 1, 10)
    none = Crossings(np.empty(0, np.int64), np.empty(0, np.int64))
    for sides in ((there, none), (none, back)):
        with pytest.raises(InputError, match="one way only"):
            align(*sides)


def test_packets_are_matched_where_their_identity_is_their_own() -> None:
    keys = np.array([5, 7, 7, 9, 2], np.uint64)
    first = (np.array([10, 20, 30, 40, 50]), keys)
    ours, theirs = matched(first, (np.array([90, 91, 92]), np.array([2, 7, 5], np.uint64)))
    assert sorted(zip(ours.tolist(), theirs.tolist(), strict=True)) == [(10, 92), (50, 90)]
