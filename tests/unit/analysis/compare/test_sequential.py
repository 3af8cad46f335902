"""The sequential test: its error where nothing changes, its power, and what its intervals hold."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest

from tailtap.analysis.compare.significance import (
    FALSE_WORSE,
    Interval,
    against,
    effect,
    fewest_pairs,
    interval,
)
from tailtap.base.errors import InputError
from tailtap.records.search import Effect

ERROR = 0.05
MARGIN = 0.2
CASES = 200 if "CI" in os.environ else 2_000
"""By hand 2,000, as the error of a few per cent needs them."""
Pairs = list[tuple[float, float]]


def series(
    random: np.random.Generator, pairs: int, change: float, noise: float, *, spikes: bool = False
) -> Pairs:
    """Late shares of runs with a change and without; some runs are `spikes`, as with steal."""
    logs = random.normal(0, noise, (pairs, 2))
    if spikes:
        logs += (random.random((pairs, 2)) < 0.1) * random.exponential(1.5, (pairs, 2))
    logs[:, 0] += math.log(change)
    return [(float(one), float(other)) for one, other in np.exp(logs)]


def decided(pairs: Pairs, error: float = ERROR, margin: float = MARGIN) -> tuple[Effect, int]:
    """The first answer, and after how many pairs: somebody looks after each."""
    for count in range(1, len(pairs) + 1):
        answer = effect(interval(pairs[:count], error), margin)
        if answer != "not shown":
            return answer, count
    return "not shown", len(pairs)


@pytest.mark.parametrize("spikes", [False, True])
def test_what_does_nothing_is_seldom_said_to_help_or_to_harm(spikes: bool) -> None:
    """Each of the two at most as often as stated, and chance may add three standard errors."""
    random = np.random.default_rng(1)
    answers = [decided(series(random, 25, 1.0, 0.3, spikes=spikes))[0] for _ in range(CASES)]
    most = ERROR + 3 * math.sqrt(ERROR / CASES)
    assert answers.count("helps") <= most * CASES
    assert answers.count("harms") <= most * CASES


def test_an_effect_beyond_the_margin_is_seldom_called_none() -> None:
    random = np.random.default_rng(2)
    answers = [decided(series(random, 25, 1 / 1.3, 0.15))[0] for _ in range(CASES // 2)]
    assert answers.count("no effect") <= (ERROR + 3 * math.sqrt(2 * ERROR / CASES)) * CASES / 2
    assert answers.count("harms") == 0


@pytest.mark.parametrize(
    ("change", "noise", "pairs"),
    [(1 / 1.1, 0.03, 8), (1 / 1.3, 0.1, 8), (0.5, 0.1, 6), (0.5, 0.3, 9), (0.1, 0.7, 7)],
)
def test_a_clear_effect_takes_few_pairs(change: float, noise: float, pairs: int) -> None:
    """The median of 40 series; an effect within the margin would be none."""
    random = np.random.default_rng(3)
    found = [decided(series(random, 60, change, noise), margin=0.01) for _ in range(40)]
    assert np.mean([answer == "helps" for answer, _ in found]) >= 0.95
    assert np.median([count for _, count in found]) <= pairs


def test_one_disturbed_run_does_not_hide_what_the_others_show() -> None:
    pairs: Pairs = [(0.5, 1.0)] * 4 + [(40.0, 1.0)] + [(0.5, 1.0)] * 9
    assert decided(pairs)[0] == "helps"


def test_intervals_hold_the_truth_at_all_times() -> None:
    random = np.random.default_rng(4)
    missed = 0
    for _ in range(CASES // 4):
        pairs = series(random, 20, 0.7, 0.2)
        found = [interval(pairs[:count], ERROR) for count in range(4, 21, 4)]
        missed += any(not (one.low or 0) <= 0.7 <= (one.high or math.inf) for one in found)
    assert missed <= (2 * ERROR + 3 * math.sqrt(8 * ERROR / CASES)) * CASES / 4


def test_the_order_of_pairs_and_the_unit_do_not_matter() -> None:
    pairs = series(np.random.default_rng(5), 12, 0.6, 0.3)
    found = interval(pairs, ERROR)
    assert interval(pairs[::-1], ERROR) == found
    scaled = interval([(1e6 * one, 1e6 * other) for one, other in pairs], ERROR)
    turned = interval([(other, one) for one, other in pairs], ERROR)
    assert found.low is not None and found.high is not None and found.ratio is not None
    assert scaled.low == pytest.approx(found.low)
    assert turned.high == pytest.approx(1 / found.low)
    assert found.low < found.ratio < found.high


def test_the_lower_side_may_have_an_error_of_its_own() -> None:
    """What is called worse follows from it alone."""
    pairs = series(np.random.default_rng(6), 12, 1.5, 0.2)
    found = interval(pairs, ERROR, FALSE_WORSE)
    assert found.low == interval(pairs, FALSE_WORSE).low
    assert found.high == interval(pairs, ERROR).high
    least = fewest_pairs(FALSE_WORSE)
    sure: Pairs = [(1e3, 1.0)] * least
    assert against(interval(sure, ERROR, FALSE_WORSE), 0.05) == "worse"
    assert against(interval(sure[:-1], ERROR, FALSE_WORSE), 0.05) == "not shown"


def test_fewest_pairs_are_what_a_clear_effect_takes() -> None:
    for error in (0.05, 0.005):
        least = fewest_pairs(error)
        sure: Pairs = [(1e-3, 1.0)] * least
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
