"""Two clocks made up with a known difference: no interval is wider than what the packets leave
open."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog
from two_clocks import START_NS, Times, TwoClocks, random_clocks

from tailtap.analysis.clocks.alignment import (
    PIECE_NS,
    Alignment,
    Crossings,
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
