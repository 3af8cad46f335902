"""Whether a change makes a difference, decided as soon as pairs of runs tell.

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

import numpy as np
from numpy.typing import NDArray

from tailtap.base.errors import InputError
from tailtap.records.compare import GateAnswer
from tailtap.records.search import Effect

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
