"""What the order of runs says: states of a machine are told from a change, and changes are seen."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tailtap.analysis.compare.gate import ALPHA, ALPHA_ALIKE, alike, step_between
from tailtap.analysis.compare.significance import above_test

Numbers = NDArray[np.float64]
MARGIN = math.log(1.05)


def following(random: np.random.Generator, count: int, like: float) -> Numbers:
    """Runs each of which is like the one before it, as far as `like` says (0 to 1)."""
    found = random.normal(size=count)
    for place in range(1, count):
        found[place] = like * found[place - 1] + math.sqrt(1 - like**2) * found[place]
    return found


def half(random: np.random.Generator, count: int) -> Numbers:
    """Half of the variance is a state that stays for some twenty runs."""
    return (following(random, count, 0.95) + random.normal(size=count)) / math.sqrt(2)


def states(random: np.random.Generator, count: int) -> Numbers:
    """Half of the variance is a state that is another after some eleven runs."""
    changed = np.cumsum(random.random(count) < 1 / 11)
    return (random.normal(size=count)[changed] + random.normal(size=count)) / math.sqrt(2)


def apart(random: np.random.Generator, count: int) -> Numbers:
    """No run depends on another."""
    return random.normal(size=count)


def worse(base: Numbers, new: Numbers) -> tuple[bool, bool]:
    """Whether the rank test shows it, and whether the order of the runs leaves it so."""
    new = new - MARGIN
    shown = above_test(new.tolist(), base.tolist()) <= ALPHA
    left = shown and alike(base.tolist(), new.tolist()) > ALPHA_ALIKE
    return shown, left and step_between(base.tolist(), new.tolist())


def shares(
    machine: Callable[[np.random.Generator, int], Numbers],
    repeats: int,
    scatter: float,
    added: float,
    cases: int,
) -> tuple[float, float]:
    """How often a change by `added` is called worse: by ranks alone, and with the order."""
    random = np.random.default_rng([repeats, cases])

    def found() -> Iterator[tuple[bool, bool]]:
        for _ in range(cases):
            runs = scatter * machine(random, 2 * repeats)
            runs[repeats:] += math.log1p(added)
            yield worse(runs[:repeats], runs[repeats:])

    plain, ordered = np.mean(list(found()), axis=0)
    return float(plain), float(ordered)


@pytest.mark.parametrize("machine", [half, states])
@pytest.mark.parametrize(("repeats", "plain_at_least"), [(6, 0.0), (20, 0.03)])
def test_a_machine_with_states_of_its_own_is_seldom_called_a_change(
    machine: Callable[[np.random.Generator, int], Numbers], repeats: int, plain_at_least: float
) -> None:
    """One after the other, with a scatter of 50 %: at most 1 %, and chance may add to it."""
    cases = 500
    plain, ordered = shares(machine, repeats, 0.5, 0.0, cases)
    assert plain >= plain_at_least  # the order is needed
    assert ordered * cases <= stats.binom.ppf(0.999, cases, 0.01)


@pytest.mark.parametrize("repeats", [6, 10, 20])
def test_a_change_by_a_third_is_still_seen(repeats: int) -> None:
    plain, ordered = shares(apart, repeats, 0.05, 0.3, 100)
    assert plain >= 0.96
    assert ordered >= 0.85 * plain


def test_independent_runs_are_as_often_alike_as_stated() -> None:
    random = np.random.default_rng(3)
    found = [alike(random.normal(size=6).tolist(), random.normal(size=9).tolist()) <= ALPHA_ALIKE
             for _ in range(200)]  # fmt: skip
    assert stats.binom.ppf(0.001, 200, 0.05) <= sum(found) <= stats.binom.ppf(0.999, 200, 0.05)


@pytest.mark.parametrize("side", [(1, 2, 3, 4, 5, 6), (3, 1, 6, 2, 5, 4), (1, 1, 2, math.inf, 5)])
def test_alike_counts_permutations(side: Sequence[float]) -> None:
    ranks = stats.rankdata(side)
    sums = [np.square(np.diff(mixed)).sum() for mixed in itertools.permutations(ranks)]
    exact = np.mean(np.asarray(sums) <= np.square(np.diff(ranks)).sum())
    assert alike(side) == pytest.approx(exact, abs=4 * math.sqrt(exact / 9_999) + 1e-4)


@pytest.mark.parametrize(
    ("earlier", "later", "there"),
    [
        ((1, 2, 1.5), (5, 6, math.inf), True),
        ((1, 1, 1), (1, 1, 1), True),
        ((1, 2, 8.5), (8, 9, 10), False),
        ((1, 2, 3), (2.5, 9, 10), False),
        ((8, 9, 10), (1, 2, 3), False),
    ],
)
def test_where_the_largest_step_is(
    earlier: Sequence[float], later: Sequence[float], there: bool
) -> None:
    assert step_between(earlier, later) is there
