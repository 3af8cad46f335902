"""The curves are order statistics: compared with definitions, not with themselves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtap.analysis.evaluation import Histogram, Percentile
from tailtap.analysis.figures.curves import (
    SUPPORT,
    Curve,
    bins_per_decade,
    confidence_band,
    log_histogram,
    outline,
    step_curve,
    tick_label,
    ticks_of_percentiles,
)
from tailtap.analysis.runs.run import Integers
from tailtap.analysis.runs.text import as_words

SAMPLES = st.lists(st.integers(0, 5_000), min_size=1, max_size=400)


def value_at(curve: Curve, x: float) -> int:
    """The latency in ns that a curve shows at `x` = 1/(1-p)."""
    index = int(np.searchsorted(curve.x, x, side="left"))
    return int(curve.y[min(index, curve.y.size - 1)])


def counted(samples: list[int]) -> tuple[Integers, Integers]:
    values, counts = np.unique(np.array(samples, dtype=np.int64), return_counts=True)
    return values, counts


@given(SAMPLES)
def test_small_samples_are_drawn_exactly(samples: list[int]) -> None:
    # Up to 100 packets every rank has its own step: the curve is the empirical distribution.
    samples = samples[:100]
    n = len(samples)
    curve = step_curve(*counted(samples))
    ordered = sorted(samples)
    for rank in range(1, n + 1):
        p = (rank - 0.5) / n  # in the middle of the rank's step
        assert value_at(curve, 1 / (1 - p)) == ordered[rank - 1]


@given(SAMPLES)
def test_steps_join_and_ascend(samples: list[int]) -> None:
    curve = step_curve(*counted(samples))
    n = len(samples)
    assert curve.x[0] == 1
    assert curve.x[-1] == 2 * n
    assert curve.y[0] == min(samples)
    assert curve.y[-1] == max(samples)
    assert (np.diff(curve.x) >= 0).all()
    assert (np.diff(curve.y) >= 0).all()
    assert (curve.x[1:-1:2] == curve.x[2::2]).all()
    assert set(curve.y.tolist()) <= set(samples)


@given(SAMPLES)
def test_the_unsupported_part_has_fewer_than_ten_packets_above(samples: list[int]) -> None:
    curve = step_curve(*counted(samples))
    n = len(samples)
    if n <= SUPPORT:
        assert curve.split == 0
    else:
        assert curve.x[curve.split - 1] == pytest.approx(n / SUPPORT)


def test_a_million_packets_stay_few_corners_and_never_understate() -> None:
    samples = np.rint(4_000 * np.random.default_rng(1).pareto(1.5, 1_000_000)).astype(np.int64)
    values, counts = np.unique(samples, return_counts=True)
    curve = step_curve(values, counts)
    assert curve.x.size < 4_000
    ordered = np.sort(samples)
    for p in (0.1, 0.5, 0.9, 0.99, 0.9999, 0.99999, 0.999999):
        x = 1 / (1 - p)
        drawn = value_at(curve, x)
        exact = ordered[int(np.ceil(round(p * 1_000_000, 3))) - 1]
        later = 1 - 1 / (x * 10 ** (1 / 100))
        assert exact <= drawn <= ordered[int(later * 1_000_000)]


def test_many_equal_latencies_are_one_step_but_for_the_support() -> None:
    curve = step_curve(np.array([7]), np.array([1_000]))
    assert curve.x.tolist() == [1, 100, 100, 2_000]
    assert curve.y.tolist() == [7, 7, 7, 7]
    assert curve.split == 2


def percentile(p: float, low: int | None, high: int | None, supported: bool = True) -> Percentile:
    return Percentile(p, 50, low, high, 99, supported)


def test_the_band_spans_both_percentiles_that_enclose_it() -> None:
    rows = [
        percentile(0.5, 10, 20),
        percentile(0.75, 30, 40),
        percentile(0.8, None, 45),
        percentile(0.9, 50, 60),
        percentile(0.99, 70, 80, supported=False),
    ]
    x, low, high = confidence_band(rows)
    assert x.tolist() == pytest.approx([2, 4, 4, 10])
    assert low.tolist() == [10, 10, 30, 30]
    assert high.tolist() == [40, 40, 60, 60]
    x, low, high = confidence_band([percentile(0.5, 1, 2), percentile(0.9, 1, 2, supported=False)])
    assert x.size == low.size == high.size == 0  # not without two


@given(
    st.dictionaries(st.integers(0, 100_000), st.integers(1, 50), min_size=1, max_size=60),
    st.sampled_from([1, 100]),
    st.sampled_from([5, 40]),
)
def test_gathered_histograms_lose_nothing(
    buckets: dict[int, int], width: int, per_decade: int
) -> None:
    places = sorted(buckets)
    histogram = Histogram(
        np.array(places) * width, np.array([buckets[place] for place in places]), width
    )
    edges, counts = log_histogram(histogram, per_decade)
    assert edges.size == counts.size + 1
    assert counts.sum() == sum(buckets.values())
    assert (np.diff(edges) > 0).all()
    for place in places:
        bin_of = np.searchsorted(edges, place * width + width / 2, side="right") - 1
        assert 0 <= bin_of < counts.size
        assert counts[bin_of] >= buckets[place]


def test_bins_are_as_fine_as_the_range_is_narrow() -> None:
    narrow = Histogram(np.array([90_000, 110_000]), np.array([1, 1]), 100)
    wide = Histogram(np.array([0, 10_000_000]), np.array([1, 1]), 100)
    assert bins_per_decade([narrow]) > 1_000
    assert bins_per_decade([narrow, wide]) == 31  # five decades and a little
    none = np.empty(0, dtype=np.int64)
    assert bins_per_decade([Histogram(none, none, 100)]) == 1


def test_outlines_begin_and_end_on_the_floor() -> None:
    x, y = outline(np.array([1.0, 2.0, 4.0]), np.array([5, 0]), 0.7)
    assert x.tolist() == [1, 1, 2, 2, 4, 4]
    assert y.tolist() == [0.7, 5, 5, 0.7, 0.7, 0.7]
    none = np.empty(0, dtype=np.int64)
    edges, counts = log_histogram(Histogram(none, none, 100), 40)
    x, y = outline(edges, counts, 0.7)
    assert edges.size == counts.size == x.size == y.size == 0


def test_ticks_stand_at_round_percentiles() -> None:
    labels = [tick_label(x).replace("\u00a0", " ") for x in ticks_of_percentiles(2e6)]
    assert labels == [
        "50 %", "75 %", "90 %", "99 %", "99.9 %", "99.99 %", "99.999 %", "99.9999 %",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("tc-mirred", "tc-mirred"),
        ({"suricata": {"rules": "many", "mode": "dpdk"}}, "suricata (rules many, mode dpdk)"),
        ({"testpmd": {}}, "testpmd"),
        ({"external": {"command": "f () { :; }"}}, "external (command f () { :; })"),
        ({"kind": "burst", "packets": 32}, "kind burst, packets 32"),
        ({"without": ["timers", "same-pages"]}, "without timers and same-pages"),
        (["timers", "same-pages"], "timers and same-pages"),
        ([1, 2], "[1, 2]"),
    ],
)
def test_varied_values_are_told_in_words(value: object, words: str) -> None:
    assert as_words(value) == words
