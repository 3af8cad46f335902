"""Which counters rise where packets are late, where both are on one clock.

For each counter the statistic is the sum, over all windows, of the score of its rate times the
score of the lateness: whole numbers, from ranks (`windows.scores`). It is held against the same
packets, shifted in a circle by times drawn at random. A shift keeps what packets and counters are
like by themselves (bursts, periods), and takes away what they have in common. As all counters see
the same shifts, the largest of their standardised statistics at each shift corrects for their
number, whatever they have in common (Westfall and Young, Resampling-Based Multiple Testing, 1993,
the single-step maxT procedure). A p-value is the share of shifts, the true place included, whose
largest statistic is at least the counter's: exact for a shift that is uniform.

What returns with the same period as the late packets fits one shift in so many by chance, and gets
a p-value of that size: it takes an irregular cause, or a short window, to be told.

How far the clock of a capture is ahead of that of the samples, as far as the data can tell.

Every offset is tried at which captures and samples overlap by at least half of the shorter one, in
steps of half a period. An offset's height is the largest over all counters of the correlation of
scores (rate against lateness), times the root of the number of windows that overlap. The
suggestion is the offset with the greatest height.

Whether it is one is a test: the lateness is cut into parts, which are put together in random order,
each forward or backward. That keeps bursts and fits nowhere as a whole. (Turning it in a circle
would be no other series to a search that tries all offsets.) The p-value is the share of searches,
the true one included, whose greatest height is at least that of the suggestion. It holds for all
counters and offsets together, and takes for granted that parts are alike.

Were another offset the true one, the suggestion would be one of those that fit nowhere. So the
offsets that are higher than 99 % of the shuffled searches come anywhere cannot be told apart, and
all others can: from the least to the greatest of them, with a period on each side, is the interval.
Lateness that returns with a period fits again after a period, wherever it is: where it resembles
itself elsewhere more than 99 % of its shuffled kin do, no offset is told.

The time between two samples is a window: how far each counter rose in it, and who was late.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tailtap.records.interrupts import CounterRow, SamplerRow, Samples

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
    """The values with the last known one, or 0, where there is none."""
    known = accumulate(values, lambda last, value: last if value is None else value, initial=0)
    return np.array(list(known)[1:], np.int64)


def _increments(values: Integers) -> Integers:
    rises = np.diff(values)
    wrapped = np.where(values[:-1] >= _HALF, rises + _WRAP, values[1:])
    return np.where(rises < 0, wrapped, rises)


SHIFTS = 999
LEVEL = 0.01
"""A p-value up to this is an association."""
LEAST_WINDOWS = round(1 / LEVEL)
"""With fewer windows, more than this share of all shifts put a packet into its own window."""
SEED = 1
LATE_SHARE = 10
"""Of each so many windows, the latest one is described as late, where packets were late in it."""
_CHUNK = 100


def associated(windows: Windows, late: Late) -> list[CounterRow]:
    """All counters that rose, the most surely associated first. At least one window."""
    shifts = [0, *_random(int(windows.bounds_ns[-1] - windows.bounds_ns[0]))]
    statistics = _statistics(windows, late, shifts)
    heights = standardised(statistics)
    tested = windows.tested
    largest = heights[:, tested].max(axis=1, initial=-np.inf)
    p_values = [
        float(np.mean(largest >= height)) if one else None
        for height, one in zip(heights[0], tested, strict=True)
    ]
    return described(windows, late, p_values, list(heights[0]))


def described(
    windows: Windows,
    late: Late,
    p_values: list[float | None] | None = None,
    heights: list[float] | None = None,
) -> list[CounterRow]:
    """The counters with these p-values, by p-value, then height, then name."""
    chosen = latest(late.lateness(windows.bounds_ns))
    lengths = windows.lengths_ns
    inside, outside = int(lengths[chosen].sum()), int(lengths[~chosen].sum())
    rows = [
        CounterRow(
            name=name,
            increments=int(rises.sum()),
            late_per_s=_per_second(int(rises[chosen].sum()), inside),
            elsewhere_per_s=_per_second(int(rises[~chosen].sum()), outside),
            p_value=p,
            associated=p is not None and p <= LEVEL,
        )
        for name, rises, p in zip(
            windows.names,
            windows.increments,
            p_values or [None] * len(windows.names),
            strict=True,
        )
    ]
    order = sorted(
        range(len(rows)),
        key=lambda k: (
            rows[k].p_value is None,
            rows[k].p_value or 0.0,
            -heights[k] if heights else 0,
            rows[k].name,
        ),
    )
    return [rows[k] for k in order]


def own_effect(starts_ns: Integers, took_ns: Integers, late: Late) -> SamplerRow | None:
    """Whether late packets were in the device while samples were taken; None without any.

    The sum of their excess is held against shifts of the packets, as above.
    """
    start, end = int(starts_ns[0]), int(starts_ns[-1])
    inside = (late.ingress_ns >= start) & (late.ingress_ns < end)
    if end <= start or not inside.any():
        return None
    begins, stays = late.ingress_ns[inside] - start, late.latency_ns[inside]
    ends_ns, length = starts_ns + took_ns - start, end - start
    sums, numbers = [], []
    for shift in [0, *_random(length)]:
        came = (begins + shift) % length
        # The last sample that began before the packet left: was it still at work as it came?
        place = np.searchsorted(starts_ns - start, came + stays, "right") - 1
        hit = ends_ns[place] > came
        sums.append(int(late.excess_ns[inside][hit].sum()))
        numbers.append(int(hit.sum()))
    p_value = float(np.mean(np.array(sums) >= sums[0]))
    return SamplerRow(
        packets=numbers[0],
        expected=float(np.mean(numbers)),
        p_value=p_value,
        delays=p_value <= LEVEL,
    )


def latest(lateness: Integers) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """The latest tenth of the windows, at least one, of those in which a packet was late."""
    most = max(1, len(lateness) // LATE_SHARE)
    chosen = np.zeros(len(lateness), np.bool_)
    chosen[np.argsort(-lateness, kind="stable")[:most]] = True
    return chosen & (lateness > 0)


def standardised(statistics: Integers) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """(shifts, K): each counter's statistics with mean 0 and deviation 1; 0 where all are equal."""
    spread = statistics.std(axis=0)
    return np.where(
        spread > 0, (statistics - statistics.mean(axis=0)) / np.where(spread > 0, spread, 1), 0.0
    )


def _statistics(windows: Windows, late: Late, shifts: list[int]) -> Integers:
    """(shifts, K). Sums of scores are exact in a float: see `MOST_WINDOWS`."""
    rates = windows.rate_scores().astype(np.float64).T
    found = []
    for begin in range(0, len(shifts), _CHUNK):
        lateness = [late.lateness(windows.bounds_ns, s) for s in shifts[begin : begin + _CHUNK]]
        found.append(scores(np.array(lateness)).astype(np.float64) @ rates)
    return np.rint(np.concatenate(found)).astype(np.int64)


def _random(length_ns: int) -> list[int]:
    return [int(s) for s in np.random.default_rng(SEED).integers(0, length_ns, SHIFTS)]


def _per_second(increments: int, ns: int) -> float:
    return increments * 1e9 / ns if ns else 0.0


SHUFFLES = 399
PARTS = 20
TELLING_SHARE = 0.25
"""An interval that is wider than this share of the offsets that were tried tells nothing."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Suggestion:
    """The offset that fits best, in ns: what to add to a sample's time for the capture's."""

    best_ns: int
    low_ns: int
    high_ns: int
    """The offsets from `low_ns` to `high_ns` cannot be told from the best one."""
    p_value: float
    searched_ns: tuple[int, int]
    windows: int
    """How many windows the captures cover."""
    periodic: bool
    """Whether the lateness resembles itself at another time."""
    counters: dict[str, float]
    """The p-value of each counter at the best offset, for all counters and offsets together."""

    @property
    def tells(self) -> bool:
        """Whether the data say anything about the offset."""
        low, high = self.searched_ns
        wide = self.high_ns - self.low_ns > TELLING_SHARE * (high - low)
        return (
            self.p_value <= LEVEL
            and not wide
            and not self.periodic
            and self.windows >= LEAST_WINDOWS
        )


def suggest(windows: Windows, late: Late) -> Suggestion | None:
    """The best offset; None where nothing rises, nobody is late, or there is one window only."""
    step = max(1, windows.period_ns // 2)
    start, length = int(windows.bounds_ns[0]), int(windows.bounds_ns[-1] - windows.bounds_ns[0])
    bins, parts = length // step, -(-(late.last_ns - late.first_ns + 1) // step)
    tested = windows.tested
    if min(bins, parts) < 2 or not tested.any():
        return None
    centres = start + step * np.arange(bins) + step // 2
    place = np.searchsorted(windows.bounds_ns, centres, "right") - 1
    lateness = scores(late.lateness(late.first_ns + step * np.arange(parts + 1)))
    search = _Search(_centred(windows.rate_scores()[tested][:, place]), parts)
    heights = search.heights(_centred(lateness))
    if not heights.any():
        return None
    shuffled = np.array([search.heights(_centred(one)).max() for one in _shuffled(lateness)])
    # A lag is how many steps the first stamp lies behind the first sample.
    offsets = late.first_ns - (start + step * search.lags)
    best = int(heights.max(axis=0).argmax())
    alike = heights.max(axis=0) > np.quantile(shuffled, 1 - LEVEL, method="higher")
    near = offsets[alike] if alike.any() else offsets
    names = [name for name, one in zip(windows.names, tested, strict=True) if one]
    return Suggestion(
        int(offsets[best]),
        int(near.min()) - windows.period_ns,
        int(near.max()) + windows.period_ns,
        _p_value(shuffled, heights[:, best].max()),
        (int(offsets.min()), int(offsets.max())),
        parts // 2,
        _is_periodic(lateness),
        {
            name: _p_value(shuffled, height)
            for name, height in zip(names, heights[:, best], strict=True)
        },
    )


def _is_periodic(lateness: Integers) -> bool:
    """Whether it resembles itself at another time; a stall's length is no other time."""
    search = _Search(_centred(lateness)[None], len(lateness))
    elsewhere = abs(search.lags) > len(lateness) // PARTS
    own = search.heights(_centred(lateness))[0, elsewhere].max(initial=0)
    others = [search.heights(_centred(one)).max() for one in _shuffled(lateness)]
    return bool(own > np.quantile(others, 1 - LEVEL, method="higher"))


def _p_value(shuffled: Floats, height: float) -> float:
    return float((1 + np.count_nonzero(shuffled >= height)) / (1 + len(shuffled)))


class _Search:
    """The heights of all lags of K counters, for one lateness after another."""

    def __init__(self, rates: Floats, parts: int) -> None:
        """`rates`: (K, n), each with the mean 0; `parts` is the length of a lateness."""
        from scipy import fft  # takes a quarter of a second to load

        bins, least = rates.shape[1], -(-min(rates.shape[1], parts) // 2)
        self.lags: Integers = np.arange(least - parts, bins - least + 1)
        """How many steps the first bin of the lateness lies behind the first of the rates."""
        self._size = fft.next_fast_len(bins + parts, real=True)
        self._rates = fft.rfft(rates, self._size)
        begin, end = np.maximum(self.lags, 0), np.minimum(self.lags + parts, bins)
        self._there = (begin - self.lags, end - self.lags)
        self._of_rates = _squares(rates, begin, end)
        self._overlap = end - begin

    def heights(self, lateness: Floats) -> Floats:
        """(K, lags)."""
        from scipy import fft

        products = fft.irfft(self._rates * np.conj(fft.rfft(lateness, self._size)), self._size)
        of_lateness = _squares(lateness[None], *self._there)
        spread = np.sqrt(self._of_rates * of_lateness)
        there = spread > 0
        found = np.where(there, products[:, self.lags % self._size] / np.where(there, spread, 1), 0)
        return np.asarray(found * np.sqrt(self._overlap / 2))


def _centred(values: Integers) -> Floats:
    centred: Floats = values - values.mean(axis=-1, keepdims=True)
    return centred


def _squares(values: Floats, begin: Integers, end: Integers) -> Floats:
    """(K, lags): the sum of squares of each row of `values` from `begin` to `end`."""
    sums = np.concatenate((np.zeros((len(values), 1)), np.cumsum(values**2, axis=1)), axis=1)
    found: Floats = sums[:, end] - sums[:, begin]
    return found


def _shuffled(lateness: Integers) -> Iterator[Integers]:
    random = np.random.default_rng(SEED)
    parts = np.array_split(lateness, PARTS)
    for _ in range(SHUFFLES):
        backward = random.random(PARTS) < 0.5
        yield np.concatenate(
            [parts[n][::-1] if backward[n] else parts[n] for n in random.permutation(PARTS)]
        )
