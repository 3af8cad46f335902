"""The time between two samples is a window: how far each counter rose in it, and who was late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tailtap.records.interrupts import Samples

Integers: TypeAlias = npt.NDArray[np.int64]

MOST_WINDOWS = 20_000
"""Of more samples than this only every n-th counts, so that sums of scores stay exact."""
SCALE = 1024
RATE_NS = 100_000_000_000
"""Rates are increments in this time, rounded down."""
LEAST_RISES = 5
"""A counter that rose in fewer windows coincides by chance with anything."""
MOST_RISES = 90_000_000
"""A counter that rises further in one window shares the highest score; a rate fits 63 bits."""
_WRAP, _HALF = 2**32, 2**31
"""The kernel counts each interrupt of each CPU in 32 bits (kstat_irqs_cpu())."""


@dataclass(frozen=True)
class Windows:
    """m windows between m + 1 samples, and the increments of K counters in them."""

    bounds_ns: Integers
    """(m + 1,), ascending."""
    names: tuple[str, ...]
    increments: Integers
    """(K, m)."""

    @property
    def number(self) -> int:
        """m."""
        return len(self.bounds_ns) - 1

    @property
    def lengths_ns(self) -> Integers:
        """(m,)."""
        return np.diff(self.bounds_ns)

    @property
    def period_ns(self) -> int:
        """The median length."""
        return int(np.median(self.lengths_ns)) if self.number else 0

    def rate_scores(self) -> Integers:
        """(K, m): the score of each counter's rate in each window, see `scores`.

        Rates, as a late sample makes a long window, in which every counter rises further.
        """
        return scores(np.minimum(self.increments, MOST_RISES) * RATE_NS // self.lengths_ns)

    @property
    def tested(self) -> npt.NDArray[np.bool_]:
        """(K,): whether a counter rose in so many windows that it can be told from chance."""
        found: npt.NDArray[np.bool_] = np.count_nonzero(self.increments, axis=1) >= LEAST_RISES
        return found

    def within(self, first_ns: int, last_ns: int) -> Windows:
        """The windows that lie in a stretch of time as a whole, and the counters that rose there.

        Without a window there, one of no length remains as its bounds.
        """
        low = min(int(np.searchsorted(self.bounds_ns, first_ns)), self.number)
        high = max(int(np.searchsorted(self.bounds_ns, last_ns, "right")), low + 1)
        increments = self.increments[:, low : high - 1]
        rose = np.flatnonzero(increments.any(axis=1))
        return Windows(
            self.bounds_ns[low:high], tuple(self.names[k] for k in rose), increments[rose]
        )


@dataclass(frozen=True)
class Late:
    """The worst packets of a capture, in any order, and the stretch that it covers."""

    ingress_ns: Integers
    latency_ns: Integers
    excess_ns: Integers
    """What each was later than the median of all packets."""
    first_ns: int
    last_ns: int

    def lateness(self, bounds_ns: Integers, shift_ns: int = 0) -> Integers:
        """The sum of the excess in each window, all packets shifted in a circle over the windows.

        A packet belongs to the window in which it came to the device.
        """
        start, end = int(bounds_ns[0]), int(bounds_ns[-1])
        inside = (self.ingress_ns >= start) & (self.ingress_ns < end)
        times = (self.ingress_ns[inside] - start + shift_ns) % (end - start) + start
        place = np.searchsorted(bounds_ns, times, "right") - 1
        sums = np.zeros(len(bounds_ns) - 1, np.int64)
        np.add.at(sums, place, self.excess_ns[inside])
        return sums


def windows_of(samples: Samples, offset_ns: int = 0) -> Windows:
    """The windows between samples, their clock put forward by `offset_ns`.

    A counter that is not listed yet counts from 0. One that falls has wrapped at 32 bits, or began
    anew where it was far from that.
    """
    step = -(-(len(samples.times_ns) - 1) // MOST_WINDOWS)
    times = np.array(samples.times_ns[::step], np.int64) + offset_ns
    names = tuple(samples.counters)
    rows = [_increments(_filled(values[::step])) for values in samples.counters.values()]
    return Windows(times, names, np.array(rows, np.int64).reshape(len(names), len(times) - 1))


def scores(values: Integers) -> Integers:
    """The exponential score of each value's rank along the last axis, in whole 1/1024.

    The i-th smallest of n has 1/n + 1/(n-1) + … + 1/(n-i+1); equal values share their mean
    (Savage, Contributions to the Theory of Rank Order Statistics, 1956). So spikes weigh most, but
    no more the higher they are.
    """
    number = values.shape[-1]
    sums = np.concatenate(([0.0], np.cumsum(np.cumsum(1 / np.arange(number, 0, -1)))))
    found = np.empty(values.shape, np.int64)
    for place in np.ndindex(values.shape[:-1]):
        _, which, counts = np.unique(values[place], return_inverse=True, return_counts=True)
        ends = np.cumsum(counts)
        means = (sums[ends] - sums[ends - counts]) / counts
        found[place] = np.rint(SCALE * means).astype(np.int64)[which]
    return found


def _filled(values: Sequence[int | None]) -> Integers:
    filled, last = np.empty(len(values), np.int64), 0
    for place, value in enumerate(values):
        last = last if value is None else value
        filled[place] = last
    return filled


def _increments(values: Integers) -> Integers:
    rises = np.diff(values)
    wrapped = np.where(values[:-1] >= _HALF, rises + _WRAP, values[1:])
    return np.where(rises < 0, wrapped, rises)
