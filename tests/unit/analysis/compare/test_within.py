"""The bootstrap of stretches, beside the binomial interval, of independent and of late packets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tails import Integers, load_tail, write_tail

from tailtap import _core
from tailtap.analysis.compare.ranking import Interval, interval

RATE = 100_000
PACKETS = 400_000


def bootstrap(folder: Path, latency: Integers, p: float) -> Interval:
    return interval(load_tail(write_tail(folder, latency, RATE), "run"), p)


def binomial(latency: Integers) -> tuple[int, int, int]:
    """The 99.9th percentile and its interval for independent packets."""
    exact = _core.percentiles(*np.unique(latency, return_counts=True), [0.999])
    (low,), (high,) = exact["low"], exact["high"]
    assert low is not None and high is not None
    return int(exact["value"][0]), low, high


def independent(seed: int) -> Integers:
    return (4_000 + 2_000 * np.random.default_rng(seed).pareto(3, PACKETS)).astype(np.int64)


def test_of_independent_packets_it_is_the_binomial_interval(tmp_path: Path) -> None:
    latency = independent(1)
    found = bootstrap(tmp_path, latency, 0.999)
    value, low, high = binomial(latency)
    assert found.low is not None and found.high is not None
    assert found.low < value < found.high
    assert 0.75 < (found.high - found.low) / (high - low) < 1.3


def stalled(seed: int) -> Integers:
    """Stalls that make 20 packets late each, once in 2,000 packets."""
    random = np.random.default_rng(seed)
    latency = 4_000 + random.integers(0, 200, PACKETS)
    starts = random.choice(PACKETS - 20, PACKETS // 2_000, replace=False)
    stalls = (30_000 * (1 + random.pareto(4, starts.size))).astype(np.int64)
    for start, stall in zip(starts, stalls, strict=True):
        latency[start : start + 20] = np.maximum(latency[start : start + 20], stall)
    return latency


def test_it_holds_the_truth_where_the_binomial_interval_does_not(tmp_path: Path) -> None:
    values, ends, naive = [], [], []
    for seed in range(40):
        latency = stalled(seed)
        found = bootstrap(tmp_path / str(seed), latency, 0.999)
        assert found.low is not None and found.high is not None
        ends.append((found.low, found.high))
        value, *interval_of_packets = binomial(latency)
        values.append(value)
        naive.append(interval_of_packets)
    truth = np.median(values)
    assert sum(low <= truth <= high for low, high in ends) >= 34
    assert sum(low <= truth <= high for low, high in naive) <= 24


@pytest.mark.parametrize(
    ("p", "reason"),
    [(0.9, "keeps too few latencies"), (0.99999, "lie in fewer than 10 of 100 stretches")],
)
def test_where_there_is_none_it_says_why(tmp_path: Path, p: float, reason: str) -> None:
    found = bootstrap(tmp_path, independent(2), p)
    assert found.low is None and reason in found.reason


def test_the_same_run_gives_the_same_interval(tmp_path: Path) -> None:
    latency = independent(3)
    assert bootstrap(tmp_path, latency, 0.999) == bootstrap(tmp_path, latency, 0.999)
