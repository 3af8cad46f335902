"""The offset of two clocks: found where something ties them, and not where nothing does."""

from __future__ import annotations

import numpy as np
import pytest

from tailtap.analysis.interrupts.association import suggest
from tailtap.analysis.interrupts.windows import Late, Windows

MS = 1_000_000
PERIOD = 10 * MS
SPAN = 4_000 * MS


def tied(seed: int, offset_ns: int, *, rises: int = 20, period_ns: int = 0) -> tuple[Windows, Late]:
    """A counter that rises with bursts of late packets, by a clock that is behind by `offset_ns`.

    Bursts come at random, or once each `period_ns`.
    """
    random = np.random.default_rng(seed)
    bounds = np.arange(0, SPAN + PERIOD, PERIOD)
    bursts = random.integers(0, SPAN, 40)
    if period_ns:
        bursts = np.arange(period_ns // 2, SPAN, period_ns)
    increments = random.poisson(0.5, (3, len(bounds) - 1))
    np.add.at(increments[1], bursts // PERIOD, rises)
    times = (bursts[:, None] + np.arange(5) * 200_000).ravel()
    noise = random.integers(0, SPAN, 20)
    times = np.concatenate((times, noise))
    excess = random.integers(1, MS, times.size)
    first = offset_ns + 300 * MS
    inside = (times + offset_ns >= first) & (times + offset_ns < first + SPAN // 2)
    late = Late(
        (times + offset_ns)[inside], excess[inside] + 9, excess[inside], first, first + SPAN // 2
    )
    return Windows(bounds, ("a", "b", "c"), increments), late


@pytest.mark.parametrize("offset_ns", [0, 12_345_678_901, -987_654_321])
def test_the_true_offset_is_within_the_interval(offset_ns: int) -> None:
    told = 0
    for seed in range(6):
        found = suggest(*tied(seed, offset_ns))
        assert found is not None
        assert abs(found.best_ns - offset_ns) <= PERIOD
        assert found.low_ns <= offset_ns <= found.high_ns
        assert found.counters["b"] <= 0.01
        told += found.tells
    assert told >= 5  # by chance another offset fits as well, once in a hundred


def test_nothing_is_suggested_where_nothing_ties_them() -> None:
    """In 20 experiments at a level of 1 %."""
    tells = 0
    for seed in range(20):
        found = suggest(*tied(seed, 5_000 * MS, rises=0))
        tells += found is not None and found.tells
    assert tells <= 2  # binomial(20, 0.01): more in 1 of 1,000 such tests


def test_what_returns_with_a_period_fits_again_after_it() -> None:
    found = suggest(*tied(1, 700 * MS, period_ns=100 * MS))
    assert found is not None and not found.tells


def test_without_a_counter_that_rises_there_is_no_suggestion() -> None:
    windows, late = tied(1, 0)
    assert suggest(Windows(windows.bounds_ns, ("a",), windows.increments[:1] * 0), late) is None
    assert suggest(Windows(windows.bounds_ns[:1], (), windows.increments[:0, :0]), late) is None
    nobody = np.empty(0, np.int64)
    assert suggest(windows, Late(nobody, nobody, nobody, 0, SPAN)) is None
