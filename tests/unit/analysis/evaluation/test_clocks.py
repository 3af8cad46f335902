"""Captures of two clocks: each number is what their lines make of the stamps, and no interval is
wider than what the packets leave open."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from math import floor
from pathlib import Path

import numpy as np
import pytest
from captures import mscap, stamps
from pairs import said
from scipy.optimize import linprog
from stamps import read_stamps
from two_clocks import TwoClocks, random_clocks

from tailtap.analysis.clocks.alignment import (
    PIECE_NS,
    Crossings,
    Stepped,
    align,
    matched,
)
from tailtap.analysis.evaluation import Evaluation, evaluate
from tailtap.analysis.evaluation.clocks import Clocks, aligned, known, parse_interval
from tailtap.base.errors import InputError
from tests.simulation.clocks import Clock
from tests.simulation.machine import Integers
from tests.simulation.traffic import START_NS

CASES = 7 if "CI" in os.environ else 20
MS = 1_000_000


def by_packets(folder: Path) -> Clocks:
    """The clocks of captures that `TwoClocks.write` wrote."""
    back = (folder / "back-before.stamps", folder / "back-after.stamps")
    return aligned(folder / "ingress.stamps", folder / "egress.stamps", back)


def evaluated(folder: Path, clocks: Clocks | None, egress: str = "egress.stamps") -> Evaluation:
    """The pair in a folder, evaluated with or without clocks."""
    return evaluate(folder / "ingress.stamps", folder / egress, clocks=clocks)


def test_the_numbers_are_those_of_whole_numbers(tmp_path: Path) -> None:
    """A slow reference: each stamp on its line by fractions, every statistic by its definition."""
    for seed in range(CASES):
        folder = tmp_path / str(seed)
        random_clocks(seed).write(folder, seed)
        clocks = by_packets(folder)
        before = dict_of(folder / "ingress.stamps")
        after = {
            key: ours_of(clocks, time) for key, time in dict_of(folder / "egress.stamps").items()
        }
        middle = {key: time - before[key] for key, time in after.items()}
        found = evaluated(folder, clocks)
        values, counts = found.distribution
        assert Counter(middle.values()) == dict(zip(values.tolist(), counts.tolist(), strict=True))
        assert found.mean == pytest.approx(sum(middle.values()) / len(middle), rel=1e-12)
        for packet in found.worst():
            key = int(packet.key)
            assert packet[:3] == (middle[key], before[key], after[key])
        blocks = found.blocks
        sums: Counter[int] = Counter()
        for key, time in after.items():
            sums[time // blocks.width_ns * blocks.width_ns] += middle[key]
        told = dict(zip(blocks.start_ns.tolist(), blocks.sum_ns.tolist(), strict=True))
        assert {start: total for start, total in sums.items() if total} == {
            start: total for start, total in told.items() if total
        }
        assert sum(found.rates("egress")[1].tolist()) == len(after)
        assert found.rates("egress")[0][0] == min(after.values())
        assert found.inputs.egress.first_ns == min(after.values())
        assert found.inputs.egress.last_ns == max(after.values())


def dict_of(path: Path) -> dict[int, int]:
    records = read_stamps(path)[1]
    return dict(zip(records["id"].tolist(), records["time"].tolist(), strict=True))


def ours_of(clocks: Clocks, time: int) -> int:
    """A time on the lines between knots, rounded down."""
    knots = clocks.knots
    place = max(bisect_right([knot[0] for knot in knots], time) - 1, 0)
    (r0, s0), (r1, s1) = knots[min(place, len(knots) - 2) :][:2]
    return floor(s0 + Fraction((time - r0) * (s1 - s0), r1 - r0))


def pair(folder: Path, latencies: list[int], ahead: int = 0) -> tuple[Path, Path]:
    """Packets a millisecond apart, with these latencies."""
    sent = [START_NS + place * MS for place in range(len(latencies))]
    came = [time + latency + ahead for time, latency in zip(sent, latencies, strict=True)]
    paths = folder / "ingress.stamps", folder / "egress.stamps"
    for path, times in zip(paths, (sent, came), strict=True):
        path.write_bytes(stamps((time, key) for key, time in enumerate(times)))
    return paths


def test_only_what_surely_is_noncausal_is(tmp_path: Path) -> None:
    """Of a difference of 100 ns, of which -100 to 200 is known: the middle is 50 ns too early."""
    shown = [-149, -150, -151, 1, 500, 700]  # on the stamps, less 50 in the middle
    found = evaluate(*pair(tmp_path, [value + 50 for value in shown]), clocks=known(-100, 200))
    # Off by 150 ns at most: -150 may be just nothing.
    assert found.counts.noncausal == 1
    assert found.distribution[0].tolist() == [-150, -149, 1, 500, 700]
    assert found.counts.lost == 0
    assert "by more than the clocks may be off" in said(found)["noncausal"]


def test_packets_that_may_be_in_the_window_are(tmp_path: Path) -> None:
    captures = pair(tmp_path, [10_000, 10_999, 11_000, 13_000])
    found = evaluate(*captures, window_ns=10_500, clocks=known(-500, 500))
    assert (found.counts.matched, found.options.window_ns) == (2, 10_500)
    # Of one clock nothing is said of two.
    found = evaluate(*captures)
    assert found.within_ns == 0 and "clocks" not in found.as_json()
    assert "bounds" not in found.as_json()["latency_ns"]
    # Clocks that are hardly known are refused.
    with pytest.raises(InputError, match="as long as --window, 1 ms"):
        evaluate(*captures, window_ns=MS, clocks=known(0, MS))
    evaluate(*captures, window_ns=MS, clocks=known(0, MS - 2))


def test_captures_of_two_clocks_that_are_taken_for_one_are_refused(tmp_path: Path) -> None:
    for offset_ns in (-50 * MS, 10**13):
        TwoClocks(Clock(offset_ns)).write(tmp_path, 5)
        with pytest.raises(InputError, match=r"--egress-ahead .*(or|and) --back"):
            evaluated(tmp_path, None)


def test_keys_that_repeat_align_nothing(tmp_path: Path) -> None:
    """Without a window, nobody can tell packets of one key apart."""
    random_clocks(5).write(tmp_path, 5)
    path = tmp_path / "back-before.stamps"
    path.write_bytes(stamps((START_NS + place, 7) for place in range(100)))
    with pytest.raises(InputError, match=r"^--back .*occurs once in each"):
        by_packets(tmp_path)


def test_times_without_a_date_are_refused(tmp_path: Path) -> None:
    random_clocks(5).write(tmp_path, 5)
    before, path = tmp_path / "ingress.stamps", tmp_path / "egress.mscap"
    path.write_bytes(mscap((START_NS + place, place) for place in range(100)))
    for ask in (
        lambda: evaluate(before, path, clocks=known(0, 5)),
        lambda: aligned(before, path, (path, path)),
    ):
        with pytest.raises(InputError, match="MoonSniff's times begin anywhere"):
            ask()


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("-3 us..5 us", (-3_000, 5_000)),
        ("0 ns .. 1 ms", (0, MS)),
        ("+2 s..3 s", (2_000_000_000, 3_000_000_000)),
        ("-5 us..-3 us", (-5_000, -3_000)),
    ],
)
def test_intervals_are_read(text: str, ends: tuple[int, int]) -> None:
    assert parse_interval(text) == ends


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("5 us..-3 us", "reversed: write the least first, '-3 us..5 us'"),
        ("5 us", "write the least and the most"),
        ("1 us..2 us..3 us", "write the least and the most"),
        ("5..7", "5 has no unit"),
        ("--3 us..5 us", "is not a time"),
        ("..5 us", "is not a time"),
    ],
)
def test_other_texts_are_no_intervals(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why) as told:
        parse_interval(text)
    assert "--egress-ahead" in str(told.value)


SEEDS = 100 if "CI" in os.environ else 1000


def packets(clocks: TwoClocks, seed: int, count: int) -> tuple[Crossings, Crossings]:
    """Packets there and back, at random times, with random delays."""
    random = np.random.default_rng(seed)
    sent, took = clocks.sent(random, count, (clocks.least_ns, clocks.mean_ns))
    left, back = clocks.sent(random, count, clocks.back_ns)
    shows = clocks.other.shows
    return Crossings(sent, shows(sent + took)), Crossings(left + back, shows(left))


def case(seed: int, span_ns: int | None = None) -> TwoClocks:
    """Any clocks, over three pieces at most."""
    span = int(np.random.default_rng(seed).integers(10**7, 3 * PIECE_NS))
    return replace(random_clocks(seed), span_ns=span_ns or span)


def times_of(clocks: TwoClocks, count: int = 20) -> Integers:
    return np.linspace(START_NS, START_NS + clocks.span_ns, count).astype(np.int64)


def test_the_interval_is_what_the_packets_leave_open() -> None:
    """A linear programme, which knows of no corners, finds the same least and most."""
    for seed in range(SEEDS):
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


def test_any_step_that_shows_is_refused() -> None:
    """One of four times what the packets leave open or more, at any time but the very ends."""
    for seed in range(SEEDS):
        random = np.random.default_rng(seed)
        clocks = case(seed, int(random.integers(10**7, 3 * PIECE_NS)))
        open_ns = align(*packets(clocks, seed, 60)).widest_ns(times_of(clocks))
        step = int(random.choice([-1, 1]) * open_ns * 4 * 10 ** random.uniform(0, 3))
        at = START_NS + int(clocks.span_ns * random.uniform(0.1, 0.9))
        stepped = replace(clocks, other=replace(clocks.other, step_ns=step, step_at_ns=at))
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
