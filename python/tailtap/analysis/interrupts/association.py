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
"""

from __future__ import annotations

import numpy as np

from tailtap.analysis.interrupts.windows import Integers, Late, Windows, scores
from tailtap.records.interrupts import CounterRow, SamplerRow

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
    statistics = _statistics(windows, late, _shifts(windows))
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


def _shifts(windows: Windows) -> list[int]:
    """0, then times at random."""
    return [0, *_random(int(windows.bounds_ns[-1] - windows.bounds_ns[0]))]


def _random(length_ns: int) -> list[int]:
    """Shifts by whole nanoseconds, the same each time."""
    return [int(s) for s in np.random.default_rng(SEED).integers(0, length_ns, SHIFTS)]


def _per_second(increments: int, ns: int) -> float:
    return increments * 1e9 / ns if ns else 0.0
