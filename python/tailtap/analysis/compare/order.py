"""What the order of runs says, where one side was measured after the other.

A rank test takes it that every assignment of the runs to the two sides is equally probable. That is
so where turns are drawn. Where all runs of one side were made before those of the other, it is so
only if runs do not resemble those beside them, as they do where the machine's state stays for a
while. Two things tell such states from a change, and a change is believed where neither speaks:

- The largest step among all runs, in the order of time, lies where the one side ends. A state that
  drifts or changes by itself has its largest step anywhere (the statistic is Pettitt's, Applied
  Statistics 28, 1979, divided by its standard deviation at each place).
- Within the two sides, runs do not resemble those beside them (the rank version of von Neumann's
  ratio, Bartels 1982, by random permutations).

A state that changes exactly where the one side ends, and stays, is no different from a change.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

ALPHA_ALIKE = 0.05
"""How often runs that do not depend on each other are called alike."""
_PERMUTATIONS = 9_999
_NEAR = 1e-9


def step_between(earlier: Sequence[float], later: Sequence[float]) -> bool:
    """Whether no step up is larger than that from the `earlier` runs to the `later` ones.

    Both are in the order of time, and may be infinite.
    """
    ranks = _ranks([*earlier, *later])
    count = ranks.size
    place = np.arange(1, count)
    steps = -np.cumsum(ranks - ranks.mean())[:-1] / np.sqrt(place * (count - place))
    return bool(steps[len(earlier) - 1] >= steps.max() - _NEAR)


def alike(*sides: Sequence[float]) -> float:
    """The p-value that runs resemble those beside them more than chance would have it.

    Each side is in the order of time.
    """
    random = np.random.default_rng(0)
    observed, by_chance = 0.0, np.zeros(_PERMUTATIONS)
    for side in sides:
        ranks = _ranks(side)
        observed += float((np.diff(ranks) ** 2).sum())
        mixed = random.permuted(np.tile(ranks, (_PERMUTATIONS, 1)), axis=1)
        by_chance += (np.diff(mixed, axis=1) ** 2).sum(axis=1)
    return float((1 + (by_chance <= observed + _NEAR).sum()) / (1 + _PERMUTATIONS))


def _ranks(numbers: Sequence[float]) -> NDArray[np.float64]:
    """Midranks."""
    _, value, count = np.unique(numbers, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(count) - (count - 1) / 2)[value], np.float64)
