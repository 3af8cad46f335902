"""Whether two configurations differ: exact rank tests over repeats, corrected for their number.

The unit of replication is the run. Packets of one run are late together (one stall delays a whole
queue; one boot, one placement in memory and one neighbour hold for all of them), so that a test on
packets would call any two runs different. Of each run one number enters: its latency at the chosen
percentile.

Under the hypothesis that two configurations do not differ, every assignment of their runs to the
two is equally probable. The statistic is the sum of the ranks (Wilcoxon 1945, Mann and Whitney
1947) in its exact permutation distribution, ties included. Ranks suit heavy tails: one run that
was a hundred times worse counts as worse, not as a hundred, while it would dominate a mean and its
variance. A run that lost its tail can be ranked behind all others without a number.

Whether a change makes a difference, decided as soon as pairs of runs tell.

A pair is a run with the change and one without it, one after the other, in random order. The unit
of replication is the run, as in `significance`: of each run one number above zero enters, such as
the share of its late packets or its latency at a percentile. Where the change does nothing, the
order alone decides which of the two numbers is the larger one, whatever is distributed how. So the
sign of the logarithm of their ratio is that of a fair coin, given its size.

The test bets against that coin and looks at its capital after each pair (Ville 1939; Shafer, J. R.
Stat. Soc. A 184, 2021; Ramdas, Grünwald, Vovk and Shafer, Statist. Sci. 38, 2023). Under the
hypothesis the capital is a martingale that begins with 1: it reaches 1/error with at most the
probability `error`, however often somebody looks, and whenever they stop. A bet wins at most its
stake and loses at most its stake, so that one disturbed run cannot ruin what nine others showed.
Several bets, of which small effects need careful ones, share the capital.

The same bets against "the ratio is r" for every r give an interval that holds at all times, if the
logarithms of the ratios are symmetric about that of the true one. Every answer follows from it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tailtap.analysis.evaluation.values import label
from tailtap.base.errors import InputError
from tailtap.records.compare import GateAnswer, Rank
from tailtap.records.search import Effect

Numbers = Sequence[float] | NDArray[np.float64]

#: The probability of any false ranking in one comparison.
ALPHA = 0.05
#: Assignments of more runs than this are not counted: the normal approximation is as good there.
MOST_COUNTED = 120
#: The most repeats that the advice asks for.
MOST_REPEATS = 1_000


@dataclass(frozen=True)
class Shift:
    """How far the runs of one configuration lie from those of another (Hodges and Lehmann 1963).

    `ratio` is the median of the ratios of all pairs of runs, `difference` of theirs; None
    where they have no value, as where too much was lost. `low` and `high` bound the ratio
    by inverting the rank test at 95 %; None with too few repeats for that. `least` and `most` do
    so for the difference, which is in the unit of the numbers.
    """

    ratio: float | None
    low: float | None
    high: float | None
    difference: float | None
    least: float | None = None
    most: float | None = None

    def turned(self) -> Shift:
        """The same from the other side: how far the other lies above this one."""

        def one_over(ratio: float | None) -> float | None:
            return 1 / ratio if ratio else None

        def less(value: float | None) -> float | None:
            return None if value is None else -value

        return Shift(
            one_over(self.ratio),
            one_over(self.high),
            one_over(self.low),
            less(self.difference),
            less(self.most),
            less(self.least),
        )


def rank_test(one: Numbers, other: Numbers) -> float:
    """The two-sided exact p-value of two sets of runs; values may be infinite.

    The probability, over all assignments of the pooled runs, of a rank sum at least as far from
    its mean as the one observed.
    """
    ranks = _doubled_ranks(one, other)
    if len(ranks) > MOST_COUNTED:
        return _normal(ranks, len(one), "two-sided")
    size, total = len(one), int(ranks.sum())
    sums = _sums(tuple(sorted(ranks.tolist())), size)
    # Means times the number of runs are integers: no rounding decides what is as far as observed.
    runs = len(ranks)
    distance = np.abs(np.arange(total + 1) * runs - size * total)
    observed = abs(int(ranks[:size].sum()) * runs - size * total)
    return float(min(sums[distance >= observed].sum(), 1.0))


def above_test(one: Numbers, other: Numbers) -> float:
    """The one-sided exact p-value that `one` lies above `other`; values may be infinite.

    The probability, over all assignments of the pooled runs, of a rank sum at least as high as the
    one observed.
    """
    ranks = _doubled_ranks(one, other)
    if len(ranks) > MOST_COUNTED:
        return _normal(ranks, len(one), "greater")
    observed = int(ranks[: len(one)].sum())
    sums = _sums(tuple(sorted(ranks.tolist())), len(one))
    return float(min(sums[observed:].sum(), 1.0))


def _doubled_ranks(one: Numbers, other: Numbers) -> NDArray[np.int64]:
    """Twice the midranks, which are integers, so that sums can be counted; those of `one` first."""
    _, value, count = np.unique([*one, *other], return_inverse=True, return_counts=True)
    return np.asarray((2 * np.cumsum(count) - count + 1)[value], np.int64)


@lru_cache(maxsize=64)
def _sums(ranks: tuple[int, ...], size: int) -> NDArray[np.float64]:
    """The probability of each sum of so many of the ranks, which ascend."""
    # ways[k, s]: how many choices of k runs have the sum s.
    total = sum(ranks)
    ways = np.zeros((size + 1, total + 1))
    ways[0, 0] = 1.0
    for rank in ranks:
        ways[1:, rank:] += ways[:-1, : total + 1 - rank].copy()
    return np.asarray(ways[size] / ways[size].sum())


def _normal(ranks: NDArray[np.int64], size: int, side: Literal["two-sided", "greater"]) -> float:
    from scipy import stats  # takes a second to load, for more runs than most have

    found = stats.mannwhitneyu(ranks[:size], ranks[size:], alternative=side, method="asymptotic")
    return float(found.pvalue)


def smallest_p(one: int, other: int) -> float:
    """The smallest p-value that so many runs against so many can reach."""
    if not one or not other:
        return 1.0
    return min(2 / math.comb(one + other, one), 1.0)


def decidable(sizes: Sequence[tuple[int, int]], alpha: float = ALPHA) -> list[bool]:
    """Which comparisons, each of so many runs against so many, are corrected for.

    As many as can all be significant under the correction for their number. The others cannot, or
    not without taking it from these, and count as undecided (after Tarone 1990). The numbers of
    runs alone decide, never their latencies, so that choosing costs nothing.
    """
    least = [smallest_p(*size) for size in sizes]
    for limit in sorted(set(least), reverse=True):
        chosen = [p <= limit for p in least]
        if limit <= alpha / sum(chosen):
            return chosen
    return [False] * len(sizes)


def holm(ps: Sequence[float]) -> list[float]:
    """The p-values corrected for their number, so that any false one has its level (Holm 1979)."""
    order = sorted(range(len(ps)), key=lambda place: ps[place])
    corrected = [1.0] * len(ps)
    highest = 0.0
    for done, place in enumerate(order):
        highest = max(highest, min(1.0, (len(ps) - done) * ps[place]))
        corrected[place] = highest
    return corrected


def corrected(ps: Sequence[float], sizes: Sequence[tuple[int, int]]) -> list[float]:
    """The p-values of one family, corrected for the `decidable` ones of it; 1 for the others."""
    able = decidable(sizes)
    found = iter(holm([p for p, yes in zip(ps, able, strict=True) if yes]))
    return [next(found) if yes else 1.0 for yes in able]


def repeats_needed(comparisons: int, alpha: float = ALPHA) -> int:
    """How many repeats of each configuration let any one of so many comparisons be significant."""
    return next(
        (n for n in range(1, MOST_REPEATS) if smallest_p(n, n) <= alpha / max(comparisons, 1)),
        MOST_REPEATS,
    )


def shift(one: Numbers, other: Numbers, alpha: float = ALPHA) -> Shift:
    """How far `one` lies above `other`, as a ratio and as a difference."""
    left, right = np.asarray(one, np.float64)[:, None], np.asarray(other, np.float64)[None, :]
    if not (np.isfinite(left).all() and np.isfinite(right).all()):
        return Shift(None, None, None, None)
    outside = _outside(len(one), len(other), alpha)

    def bounds(pairs: NDArray[np.float64]) -> tuple[float | None, float | None]:
        ordered = np.sort(pairs.ravel())
        return (float(ordered[outside - 1]), float(ordered[-outside])) if outside else (None, None)

    difference, apart = float(np.median(left - right)), bounds(left - right)
    if not (left > 0).all() or not (right > 0).all():
        return Shift(None, None, None, difference, *apart)
    ratio = float(np.exp(np.median(np.log(left / right))))
    return Shift(ratio, *bounds(left / right), difference, *apart)


@lru_cache(maxsize=64)
def _outside(one: int, other: int, alpha: float) -> int:
    """How many of the ordered pairs lie outside the interval on either side."""
    # counts[k, u]: assignments whose statistic U, the number of pairs won, is u.
    most = one * other
    counts = np.zeros((one + 1, most + 1))
    counts[0, 0] = 1.0
    for rank in range(one + other):
        for size in range(min(one, rank + 1), 0, -1):
            # The run of this rank wins against the `rank - (size - 1)` of the others below it.
            wins = rank - (size - 1)
            if wins <= other:
                counts[size, wins:] += counts[size - 1, : most + 1 - wins].copy()
    below = np.cumsum(counts[one]) / counts[one].sum()
    return int(np.searchsorted(below, alpha / 2, side="right"))


def percentile_text(p: float) -> str:
    """A percentile as people write it; 1 is the maximum."""
    return "max" if p == 1 else label(p)


def rank_text(rank: Rank | None) -> str:
    """A rank: ``2``, or ``1 to 3``; empty without one."""
    if rank is None:
        return ""
    more = "" if rank.best == rank.last else f" to {rank.last}"
    return f"{rank.best}{more}"


def ratio_text(shift: Shift) -> str:
    """A ratio with its interval: ``x1.83 (1.20 to 2.41)``."""
    if shift.ratio is None:
        return "no ratio"
    text = f"x{_digits(shift.ratio)}"
    if shift.low is None or shift.high is None:
        return text
    return f"{text} ({_digits(shift.low)} to {_digits(shift.high)})"


def _digits(ratio: float) -> str:
    return f"{ratio:,.2f}" if ratio < 100 else f"{ratio:,.0f}"


ERROR = 0.05
"""The probability of any wrong answer, over all tests that are made together."""
FALSE_WORSE = 0.01
"""The probability that something is called worse than a base and is not: that stops work."""
STAKE = 0.9
"""The share of its capital that a bet risks on a pair, at most."""
SCALES = (2.0, 8.0, 32.0)
"""Bets stake nearly all of that where the logarithm of the ratio is above 1/scale."""
WIDEST = 20.0
"""Intervals are looked for among ratios of e^-20 to e^20."""
_ROUNDS, _TRIED = 4, 65


@dataclass(frozen=True)
class Interval:
    """The ratio of what was measured with a change to what was measured without it.

    `ratio` is the median of the pairs. `low` and `high` bound the true one, each with the error
    that was asked for; None where the pairs do not bound it.
    """

    pairs: int
    ratio: float | None
    low: float | None
    high: float | None


def fewest_pairs(error: float) -> int:
    """How many pairs a clear effect takes: with fewer nothing can be shown."""
    return math.ceil(math.log(1 / error) / math.log1p(STAKE))


def interval(
    pairs: Sequence[tuple[float, float]], error: float, below: float | None = None
) -> Interval:
    """The interval of the ratio after these pairs of (with, without), all above zero.

    `error` is that of each side, but for the lower one where `below` is given. The order of the
    pairs does not matter. Raises `InputError` for a number that is not above zero.
    """
    if any(not (0 < value < math.inf) for pair in pairs for value in pair):
        raise InputError("only numbers above zero have a ratio")
    if not pairs:
        return Interval(0, None, None, None)
    numbers = np.asarray(pairs, np.float64)
    logs = np.log(numbers[:, 0]) - np.log(numbers[:, 1])
    low = _crossing(logs, math.log(1 / (error if below is None else below)))
    high = _crossing(-logs, math.log(1 / error))
    return Interval(
        len(pairs),
        math.exp(float(np.median(logs))),
        None if low is None else math.exp(low),
        None if high is None else math.exp(-high),
    )


def effect(found: Interval, margin: float) -> Effect:
    """Whether a change that lowers what is measured helps.

    An effect of less than `margin` (0.1: a tenth, from 1/1.1 to 1.1) is none that matters: it is
    "no effect" when the whole interval lies there.
    """
    low, high = found.low, found.high
    if high is not None and high < 1:
        return "helps"
    if low is not None and low > 1:
        return "harms"
    if low is not None and high is not None and low >= 1 / (1 + margin) and high <= 1 + margin:
        return "no effect"
    return "not shown"


def against(found: Interval, margin: float) -> GateAnswer:
    """Whether what was measured is worse than a base by more than `margin` (0.05: 5 %)."""
    low, high = found.low, found.high
    if high is not None and high < 1:
        return "better"
    if high is not None and high <= 1 + margin:
        return "no worse"
    if low is not None and low > 1 + margin:
        return "worse"
    return "not shown"


def _crossing(logs: NDArray[np.float64], needed: float) -> float | None:
    """The largest number that `logs` are shown to lie above; None where nothing shows any.

    `needed` is the logarithm of the capital that shows it.
    """
    low, high = -WIDEST, WIDEST
    if _capital(logs, np.array([low]))[0] < needed:
        return None
    for _ in range(_ROUNDS):
        tried = np.linspace(low, high, _TRIED)
        last = int(np.flatnonzero(_capital(logs, tried) >= needed)[-1])
        low, high = tried[last], tried[min(last + 1, _TRIED - 1)]
    return float(low)


def _capital(logs: NDArray[np.float64], tried: NDArray[np.float64]) -> NDArray[np.float64]:
    """The logarithm of the capital of bets that `logs` lie above each number that is `tried`."""
    above = logs[None, :] - tried[:, None]
    growth = [np.log1p(STAKE * np.tanh(scale * above)).sum(axis=1) for scale in SCALES]
    found: NDArray[np.float64] = np.logaddexp.reduce(growth) - math.log(len(SCALES))
    return found
