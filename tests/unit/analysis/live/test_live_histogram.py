"""Latencies in bounded memory, against the values themselves."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tailtap.analysis.evaluation.percentiles import DEFAULT, percentiles_of
from tailtap.analysis.live.counting import BOUNDS_NS, PRECISION, SCHEMA, Histogram

VALUES = st.lists(st.one_of(st.integers(0, 5000), st.integers(0, 2**45)), min_size=1, max_size=300)


def added(histogram: Histogram, values: list[int]) -> Histogram:
    histogram.add(*np.unique(np.array(values, np.int64), return_counts=True))
    return histogram


@given(VALUES, VALUES)
def test_percentiles_are_a_thousandth_off_at_most_and_the_rest_is_exact(
    first: list[int], second: list[int]
) -> None:
    histogram = added(added(Histogram(), first), second)
    both = np.array(first + second, np.int64)
    exact = percentiles_of(np.unique(both, return_counts=True), DEFAULT)
    for found, true in zip(histogram.percentiles(DEFAULT), exact, strict=True):
        assert (found.above, found.supported) == (true.above, true.supported) or (
            # Values of one bucket are one value.
            found.above <= true.above
        )
        assert true.value <= found.value <= true.value * (1 + PRECISION)
        if true.value < 2048:
            assert found.value == true.value
    assert histogram.count == both.size and histogram.max_ns == both.max()
    assert histogram.sum_ns == sum(map(int, both))
    assert histogram.cumulative == [int((both <= bound).sum()) for bound in BOUNDS_NS]


@given(VALUES, VALUES)
def test_merging_is_as_if_all_had_come_to_one(first: list[int], second: list[int]) -> None:
    merged = added(Histogram(), first)
    merged.merge(added(Histogram(), second))
    whole = added(added(Histogram(), first), second)
    assert merged.percentiles(DEFAULT) == whole.percentiles(DEFAULT)
    assert (merged.cumulative, merged.sum_ns) == (whole.cumulative, whole.sum_ns)


@given(VALUES)
def test_exponential_buckets_hold_what_is_not_above_their_bounds(values: list[int]) -> None:
    histogram = added(Histogram(), values)
    shown = histogram.exponential
    assert [one.index for one in shown] == sorted({one.index for one in shown})
    true = np.array([value for value in values if value])
    assert sum(one.count for one in shown) == true.size
    below = 0
    for one in shown:
        below += one.count
        bound = 2 ** (one.index / 2**SCHEMA) * 1e9
        assert (true * (1 + PRECISION) <= bound).sum() <= below <= (true <= bound * 1.000001).sum()


def test_nothing_has_no_percentiles() -> None:
    assert Histogram().exponential == []
    assert added(Histogram(), []).percentiles(DEFAULT) == []
