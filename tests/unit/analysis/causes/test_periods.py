"""Periods and beats of points whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from tailtap.analysis.causes.claims import FALSE_ALARM, periods, tick

SECOND = 1_000_000_000
START = 7_000 * SECOND
SPAN = (START, START + 30 * SECOND)


def test_random_points_have_no_period() -> None:
    alarms = 0
    for seed in range(100):
        random = np.random.default_rng(seed)
        points = np.sort(random.integers(*SPAN, 400))
        alarms += bool(periods(points, SPAN, 20_000.0, 250.0))
    # At most two families are tried in each: known periods, and all frequencies.
    assert alarms <= 2 + 100 * 2 * FALSE_ALARM


def test_points_that_come_in_groups_have_none_either() -> None:
    for seed in range(20):
        random = np.random.default_rng(seed)
        groups = random.integers(*SPAN, 20)
        points = (groups[:, None] + random.integers(0, SECOND // 2, (20, 15))).ravel()
        assert not periods(np.sort(points), SPAN, None, 250.0), seed


@pytest.mark.parametrize("period_ns", [1_000_000, 4_000_000, 7_300_000, 100_000_000, SECOND])
def test_a_period_is_found_among_random_points(period_ns: int) -> None:
    random = np.random.default_rng(1)
    times = START + np.arange(123_456, 30 * SECOND, period_ns)
    chosen = np.sort(random.choice(times, min(times.size, 200), replace=False))
    points = np.sort(np.concatenate((chosen, random.integers(*SPAN, chosen.size // 2))))
    found = periods(points, SPAN, None, None)[0]
    assert found.period_ns == pytest.approx(period_ns, rel=1e-3)
    assert found.false_alarm < FALSE_ALARM


def test_the_tick_has_its_name() -> None:
    times = START + np.arange(777, 30 * SECOND, 4_000_000)
    assert tick(times) == 250.0
    found = periods(times[::7], SPAN, None, 250.0)
    assert found[0].period_ns == pytest.approx(28_000_000, rel=1e-5)
    found = periods(np.sort(np.random.default_rng(1).choice(times, 500)), SPAN, None, 250.0)
    assert found[0].words == "the tick (250 Hz)"


def test_timers_at_any_time_are_no_tick() -> None:
    random = np.random.default_rng(1)
    assert tick(np.sort(random.integers(*SPAN, 5000))) is None
    assert tick(np.array([1, 2])) is None


def test_a_beat_of_packets_with_the_tick_is_named() -> None:
    """A packet every 333,200 ns meets a tick of 4 ms at a phase that drifts."""
    rate = 1e9 / 333_200
    packets = START + np.arange(0, 30 * SECOND, 333_200)
    met = packets[(packets - START) % 4_000_000 < 20_000]
    beat = abs(rate - 250 * round(rate / 250))
    found = periods(met, SPAN, rate, 250.0)
    words = " ".join(period.words for period in found)
    assert "the beat of 3,001.20 pkt/s with the tick (250 Hz)" in words, (found, beat)
