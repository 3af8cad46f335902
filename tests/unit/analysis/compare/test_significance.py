"""The tests over repeats, against scipy, by enumeration, and under the hypothesis."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from cases import cases
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests

from tailtap.analysis.compare.significance import (
    ALPHA,
    MOST_COUNTED,
    decidable,
    holm,
    rank_test,
    repeats_needed,
    shift,
    smallest_p,
)

LATENCIES = st.lists(st.integers(1, 12), min_size=1, max_size=5)


@settings(deadline=None)
@given(LATENCIES, LATENCIES)
def test_the_p_value_counts_assignments(one: list[int], other: list[int]) -> None:
    """Ties included: every way to deal the pooled runs out again, by brute force."""
    ranks = stats.rankdata([*one, *other])
    middle = len(one) * ranks.mean()
    observed = abs(ranks[: len(one)].sum() - middle)
    sums = [abs(sum(chosen) - middle) for chosen in combinations(ranks, len(one))]
    expected = np.mean([value >= observed - 1e-9 for value in sums])
    assert rank_test(one, other) == pytest.approx(expected)


@pytest.mark.parametrize("sizes", [(3, 3), (5, 8), (12, 12), (20, 7)])
def test_without_ties_it_is_the_exact_test_of_mann_and_whitney(sizes: tuple[int, int]) -> None:
    random = np.random.default_rng(sum(sizes))
    one, other = (random.pareto(1.2, size) * 1e4 for size in sizes)
    expected = stats.mannwhitneyu(one, other, method="exact").pvalue
    assert rank_test(one, other) == pytest.approx(expected)


def test_many_runs_are_tested_by_the_normal_approximation() -> None:
    random = np.random.default_rng(1)
    one, other = random.normal(0, 1, MOST_COUNTED), random.normal(0.2, 1, 60)
    expected = stats.mannwhitneyu(one, other, method="asymptotic").pvalue
    assert rank_test(one, other) == pytest.approx(expected)


def test_overloaded_runs_are_later_than_any() -> None:
    assert rank_test([math.inf] * 4, [1, 2, 3, 4]) == smallest_p(4, 4) == pytest.approx(2 / 70)
    assert rank_test([math.inf] * 4, [math.inf] * 4) == 1


def test_three_repeats_reach_a_tenth_at_best() -> None:
    assert smallest_p(3, 3) == pytest.approx(0.1)
    assert rank_test([9, 8, 7], [1, 2, 3]) == pytest.approx(0.1)
    assert smallest_p(1, 1) == 1 and smallest_p(0, 5) == 1
    assert repeats_needed(1) == 4 and smallest_p(4, 4) < ALPHA
    assert smallest_p(repeats_needed(91), repeats_needed(91)) <= ALPHA / 91


@cases(30)
@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_is_that_of_statsmodels(ps: list[float]) -> None:
    if ps:
        assert holm(ps) == pytest.approx(multipletests(ps, method="holm")[1].tolist())
    else:
        assert holm(ps) == []


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), max_size=40))
def test_only_comparisons_that_can_be_significant_are_corrected_for(
    sizes: list[tuple[int, int]],
) -> None:
    chosen = decidable(sizes)
    count = sum(chosen)
    least = [smallest_p(*size) for size in sizes]
    assert all(p <= ALPHA / count for p, yes in zip(least, chosen, strict=True) if yes)
    # Whoever is left out would be one too many.
    for p, yes in zip(least, chosen, strict=True):
        assert yes or p > ALPHA / sum(other <= p for other in least)


def test_shift_is_of_hodges_and_lehmann() -> None:
    found = shift([20.0, 40.0, 60.0, 80.0], [10.0, 10.0, 10.0, 10.0])
    assert found.ratio == pytest.approx(math.sqrt(4 * 6)) and found.difference == 40
    assert (found.low, found.high) == (2, 8)
    assert shift([3.0], [2.0]).low is None
    unknown = shift([math.inf, 2.0], [1.0, 2.0])
    assert (unknown.ratio, unknown.difference) == (None, None)
    assert shift([0.0, 2.0], [1.0, 2.0]).ratio is None


def test_intervals_of_the_shift_hold_the_truth() -> None:
    """At least 95 %: the exact distribution is discrete."""
    random = np.random.default_rng(2)
    held, drawn = 0, 1_000
    for _ in range(drawn):
        one, other = 3 * random.lognormal(0, 0.5, 6), random.lognormal(0, 0.5, 5)
        found = shift(one, other)
        assert found.low is not None and found.high is not None
        held += found.low <= 3 <= found.high
    assert 0.95 * drawn <= held <= 0.98 * drawn


@cases(40)
@given(
    st.integers(2, 5),
    st.sampled_from([(5, 5), (6, 4), (8, 8)]),
    st.sampled_from([0.3, 1.0, 3.0]),
    st.integers(0, 2**32 - 1),
)
def test_levels_hold_whatever_the_tail(
    groups: int, sizes: tuple[int, int], alpha: float, seed: int
) -> None:
    """A p-value is at most its level as often as the level says, for tails without a mean too."""
    random = np.random.default_rng(seed)
    ps = [
        rank_test(random.pareto(alpha, sizes[0]), random.pareto(alpha, sizes[1]))
        for _ in range(60 * groups)
    ]
    for level in (0.05, 0.2):
        # 1e-6 of chance that a right test fails here.
        assert sum(p <= level for p in ps) <= stats.binom.ppf(1 - 1e-6, len(ps), level)
