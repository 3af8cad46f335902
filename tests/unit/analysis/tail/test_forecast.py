"""What is said without a model, held against futures that the tests simulate."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from tails import load_tail, write_tail

from tailtap.analysis.evaluation.values import Blocks
from tailtap.analysis.runs.tail import SECOND_NS, StoredTail
from tailtap.analysis.tail import Options, analyse
from tailtap.analysis.tail.analysis import record
from tailtap.analysis.tail.forecast import forecast
from tailtap.records.tail import ForecastRecord

RATE = 100_000
PACKETS = 1_000_000
RUN_NS = 10 * SECOND_NS
LEVEL = 1_000
Integers = npt.NDArray[np.int64]
Sizes = Callable[[np.random.Generator, int], Integers]


def one(random: np.random.Generator, count: int) -> Integers:
    return np.ones(count, dtype=np.int64)


def five(random: np.random.Generator, count: int) -> Integers:
    return np.full(count, 5)


def geometric(random: np.random.Generator, count: int) -> Integers:
    return random.geometric(0.1, count)


def run_of(position: Integers, latency: Integers) -> StoredTail:
    """A run whose packets at `position` took `latency` (ns), and all others less than `LEVEL`."""
    empty = np.empty(0, np.int64)
    return StoredTail(
        name="made",
        packets=PACKETS,
        lost=0,
        rate=RATE,
        floor_ns=LEVEL,
        position=position,
        ingress_ns=position * (SECOND_NS // RATE),
        latency_ns=latency,
        blocks=Blocks(1, empty, empty, empty, empty),
    )


def events(random: np.random.Generator, mean: float, sizes: Sizes) -> StoredTail:
    """Events of a Poisson process, far enough from each other to be told apart."""
    count = max(1, random.poisson(mean))
    place = random.choice(PACKETS // 1000, count, replace=False) * 1000
    packets = [
        np.arange(size) + first for first, size in zip(place, sizes(random, count), strict=True)
    ]
    position = np.sort(np.concatenate(packets))
    return run_of(position, np.full(position.size, LEVEL + 1))


def told(tail: StoredTail, ratio: float) -> ForecastRecord:
    found = forecast(tail, (LEVEL,), round(ratio * RUN_NS))
    assert found is not None
    return found


def held(sizes: Sizes, mean: float, ratio: float) -> float:
    """The share of 200 supported intervals that hold what a horizon of so many runs brings."""
    random = np.random.default_rng([round(mean), round(10 * ratio)])
    hold = supported = 0
    while supported < 200:
        expected = told(events(random, mean, sizes), ratio).levels[0].expected_packets
        if not expected.supported:
            continue
        supported += 1
        many = random.poisson(mean * ratio)
        hold += expected.low <= sizes(random, many).sum() <= expected.high
    return hold / supported


def test_intervals_hold_what_a_horizon_brings() -> None:
    """95 of 100 are meant, of single packets and of bursts. With 200 tries of a case chance gives
    no less than 90, and with all 2400 no less than 93 and no more than 97.
    """
    cases = list(product((one, five, geometric), (120, 300), (0.5, 50.0)))
    found = {case: held(*case) for case in cases}
    assert min(found.values()) >= 0.90, found
    assert 0.93 <= sum(found.values()) / len(found) <= 0.97, found


def test_the_largest_of_the_run_is_exceeded_as_often_as_is_said() -> None:
    """Of heavy tails, too: only the order of blocks counts."""
    random = np.random.default_rng(5)
    ratio, seconds, trials = 3, 10, 4000
    larger = sum(
        random.pareto(0.7, ratio * seconds).max() > random.pareto(0.7, seconds).max()
        for _ in range(trials)
    )
    tail = run_of(np.array([5]), np.array([LEVEL + 1]))
    assert told(tail, ratio).exceeded == pytest.approx(larger / trials, abs=0.03)


def test_what_a_run_must_last_bounds_a_horizon() -> None:
    found = told(run_of(np.array([5]), np.array([LEVEL + 1])), 1)
    longer = found.needed_ns / RUN_NS
    assert 1 - 1 / (1 + longer) == pytest.approx(0.95)


def test_what_did_not_come_is_bounded_by_the_time_in_which_it_did_not() -> None:
    """No event in a run that lasts as long as the horizon: three in it have a chance below 5 %."""
    tail = run_of(np.empty(0, np.int64), np.empty(0, np.int64))
    found = told(tail, 1)
    # With one before, the count is geometric: 1/2, 1/4, 1/8, 1/16, 1/32.
    assert found.unseen == 4
    assert found.levels[0].expected_packets.low == 0
    assert not found.levels[0].expected_packets.supported


def test_events_of_half_a_second_say_nothing_sure_of_ten_runs() -> None:
    position = np.arange(60) * 1000
    found = told(run_of(position, np.full(60, LEVEL + 1)), 10)
    assert found.levels[0].uneven
    assert not found.levels[0].expected_events.supported


def test_a_run_that_no_model_holds_for_has_a_forecast(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    latency = 5_000 + random.exponential(500, 200_000).astype(np.int64)
    for start in random.integers(0, latency.size - 50, 400):
        latency[start : start + random.integers(1, 30)] += round(random.exponential(40_000))
    write_tail(tmp_path, latency, RATE)
    tail = load_tail(tmp_path, "made")
    model = record(analyse(tail, Options()))
    assert any(warning.code == "no-model" for warning in model.warnings)
    hour, _ = model.forecasts
    assert hour.exceeded == pytest.approx(1 - 1 / (1 + 3600 / 2), abs=1e-6)
    for level in hour.levels:
        assert level.packets == int((latency > level.level_ns).sum())
        assert level.expected_packets.value == pytest.approx(level.packets * 1800)
