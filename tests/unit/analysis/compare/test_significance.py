"""The tests over repeats and pairs: against scipy, by enumeration, and how often they are wrong."""

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
    FALSE_WORSE,
    MOST_COUNTED,
    Interval,
    against,
    decidable,
    effect,
    fewest_pairs,
    holm,
    interval,
    rank_test,
    repeats_needed,
    shift,
    smallest_p,
)
from tailtap.base.errors import InputError

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
    # The critical value of five against six is 3 in the tables of Mann and Whitney at 5 %.
    one, other = np.exp2(np.arange(5)), 3 ** np.arange(6.0)
    ratios, found = np.sort((one[:, None] / other).ravel()), shift(one, other)
    assert (found.low, found.high) == (ratios[3], ratios[-4])
    assert shift([3.0], [2.0]).low is None
    unknown = shift([math.inf, 2.0], [1.0, 2.0])
    assert (unknown.ratio, unknown.difference) == (None, None)
    assert shift([0.0, 2.0], [1.0, 2.0]).ratio is None


ERROR = 0.05
MARGIN = 0.2
Pairs = list[tuple[float, float]]


def test_the_lower_side_may_have_an_error_of_its_own() -> None:
    """What is called worse follows from it alone."""
    sure: Pairs = [(1e3, 1.0)] * fewest_pairs(FALSE_WORSE)
    assert against(interval(sure, ERROR, FALSE_WORSE), 0.05) == "worse"
    assert against(interval(sure[:-1], ERROR, FALSE_WORSE), 0.05) == "not shown"


def test_fewest_pairs_are_what_a_clear_effect_takes() -> None:
    for error in (0.05, 0.005):
        sure: Pairs = [(1e-3, 1.0)] * fewest_pairs(error)
        assert effect(interval(sure, error), MARGIN) == "helps"
        assert effect(interval(sure[:-1], error), MARGIN) == "not shown"


@pytest.mark.parametrize(
    ("low", "high", "helps", "worse"),
    [
        (0.5, 0.9, "helps", "better"),
        (1.1, 1.4, "harms", "worse"),
        (1.01, 1.04, "harms", "no worse"),
        (0.9, 1.04, "no effect", "no worse"),
        (0.9, 1.1, "no effect", "not shown"),
        (0.7, 1.1, "not shown", "not shown"),
        (None, None, "not shown", "not shown"),
        (1.02, None, "harms", "not shown"),
    ],
)
def test_answers_follow_from_the_interval(
    low: float | None, high: float | None, helps: str, worse: str
) -> None:
    found = Interval(9, 1.0, low, high)
    assert effect(found, MARGIN) == helps
    assert against(found, 0.05) == worse


def test_numbers_without_a_ratio_are_refused() -> None:
    with pytest.raises(InputError, match="above zero"):
        interval([(0.0, 1.0)], ERROR)
    assert interval([], ERROR) == Interval(0, None, None, None)
