"""Two clocks made up with a known difference: the truth lies in every interval, and no interval is
wider than what the packets leave open."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from tailtap.alignment import PIECE_NS, Alignment, Crossings, Stepped, align, matched
from tailtap.errors import InputError

CASES = 1000
START_NS = 5_000_000_000_000
Times = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Clocks:
    """Their clock against ours, and what packets take between them."""

    offset_ns: int
    drift: float
    there_ns: tuple[int, int]
    """The least delay, and the mean of what comes on top of it."""
    back_ns: tuple[int, int]
    step_ns: int = 0
    step_at: int = 1 << 62

    def theirs(self, ours: Times) -> Times:
        """What their clock shows when ours shows this."""
        ahead = self.offset_ns + np.rint(self.drift * (ours - START_NS)).astype(np.int64)
        stepped = np.where(ours >= self.step_at, self.step_ns, 0).astype(np.int64)
        theirs: Times = ours + ahead + stepped
        return theirs

    def packets(self, seed: int, count: int, span_ns: int) -> tuple[Crossings, Crossings]:
        """Packets there and back, at random times, with random delays."""
        random = np.random.default_rng(seed)
        sides = []
        for least, mean in (self.there_ns, self.back_ns):
            sent = np.sort(random.integers(START_NS, START_NS + span_ns, count))
            delay = least + np.rint(random.exponential(mean, count)).astype(np.int64)
            sides.append((sent, sent + delay))
        (sent, came), (left, back) = sides
        return Crossings(sent, self.theirs(came)), Crossings(back, self.theirs(left))


def case(seed: int) -> Clocks:
    """A random pair of clocks; delays of the two directions differ by up to a hundred times."""
    random = np.random.default_rng(seed)
    there, back = (int(10 ** random.uniform(2, 5)) for _ in range(2))
    means = [int(10 ** random.uniform(1, 6)) for _ in range(2)]
    offset = int(random.integers(-(10**15), 10**15))
    drift = float(random.uniform(-1, 1) * 10 ** random.uniform(-8, -3.3))
    return Clocks(offset, drift, (there, means[0]), (back, means[1]))


def within(found: Alignment, clocks: Clocks, times: Times) -> bool:
    """Whether the truth lies in the intervals, asked both ways."""
    least, most = found.ahead_ns(times)
    truth = clocks.theirs(times) - times
    earliest, latest = found.ours_ns(clocks.theirs(times))
    right = (least <= truth) & (truth <= most) & (earliest <= times) & (times <= latest)
    return bool(right.all())


def test_the_truth_lies_in_every_interval() -> None:
    for seed in range(CASES):
        clocks = case(seed)
        span = int(np.random.default_rng(seed).integers(10**7, 3 * PIECE_NS))
        found = align(*clocks.packets(seed, 40, span))
        times = np.linspace(START_NS, START_NS + span, 20).astype(np.int64)
        assert within(found, clocks, times), f"case {seed}: {clocks}"


def test_known_least_delays_make_it_narrower_and_still_right() -> None:
    for seed in range(50):
        clocks = case(seed)
        there, back = clocks.packets(seed, 60, PIECE_NS)
        times = np.linspace(START_NS, START_NS + PIECE_NS, 20).astype(np.int64)
        known = align(replace(there, least_ns=clocks.there_ns[0]),
                      replace(back, least_ns=clocks.back_ns[0]))  # fmt: skip
        assert within(known, clocks, times)
        assert known.widest_ns(times) < align(there, back).widest_ns(times)


def test_the_interval_is_what_the_packets_leave_open() -> None:
    """A linear programme, which knows of no corners, finds the same least and most."""
    for seed in range(30):
        there, back = case(seed).packets(seed, 30, PIECE_NS - 1)
        found = align(there, back)
        [piece] = found.pieces
        base = piece.offset_ns
        rows, limits = [], []
        for sign, side in ((1, there), (-1, back)):
            at = (side.ours_ns - piece.middle_ns) / 1e9
            bound = side.theirs_ns - side.ours_ns - base
            rows += [(sign, sign * one) for one in at.tolist()]
            limits += (sign * bound).tolist()
        for time in (piece.from_ns, piece.middle_ns, piece.until_ns):
            since = (time - piece.middle_ns) / 1e9
            ends = []
            for sign in (1, -1):
                told = linprog([sign, sign * since], A_ub=rows, b_ub=limits,
                               bounds=[(None, None), (-1e7, 1e7)])  # fmt: skip
                assert told.success and told.fun is not None
                ends.append(sign * told.fun)
            least, most = found.ahead_ns(np.array([time]))
            scale = 3 + 1e-6 * (ends[1] - ends[0])
            assert abs(int(least[0]) - base - ends[0]) <= scale
            assert abs(int(most[0]) - base - ends[1]) <= scale


def test_even_clocks_are_known_to_the_round_trip() -> None:
    """With equal rates and constant delays nothing is open but how the round trip is shared."""
    clocks = Clocks(-77, 0.0, (300, 0), (9_000, 0))
    found = align(*clocks.packets(1, 5_000, PIECE_NS - 1))
    middle = np.array([START_NS + PIECE_NS // 2])
    least, most = found.ahead_ns(middle)
    assert 9_300 <= int(most[0] - least[0]) <= 9_304
    assert int(most[0]) + 77 in range(300, 303)


def test_a_step_is_refused() -> None:
    """One that is several times as large as the interval is wide, at any time but the very ends."""
    for seed in range(30):
        random = np.random.default_rng(seed)
        clocks = Clocks(10**9, 1e-5, (1_000, 500), (2_000, 500))
        span = int(random.integers(PIECE_NS // 2, 3 * PIECE_NS))
        step = int(random.choice([-1, 1]) * 10 ** random.uniform(5, 9))
        at = START_NS + int(span * random.uniform(0.05, 0.95))
        stepped = replace(clocks, step_ns=step, step_at=at)
        with pytest.raises(Stepped, match="stepped"):
            align(*stepped.packets(seed, 2_000, span))
        align(*clocks.packets(seed, 2_000, span))


def test_one_way_tells_nothing() -> None:
    there, back = case(1).packets(1, 10, PIECE_NS)
    none = Crossings(np.empty(0, np.int64), np.empty(0, np.int64))
    for sides in ((there, none), (none, back)):
        with pytest.raises(InputError, match="one way only"):
            align(*sides)


def test_packets_are_matched_where_their_identity_is_their_own() -> None:
    keys = np.array([5, 7, 7, 9, 2], np.uint64)
    first = (np.array([10, 20, 30, 40, 50]), keys)
    second = (np.array([90, 91, 92]), np.array([2, 7, 5], np.uint64))
    ours, theirs = matched(first, second)
    assert sorted(zip(ours.tolist(), theirs.tolist(), strict=True)) == [(10, 92), (50, 90)]
