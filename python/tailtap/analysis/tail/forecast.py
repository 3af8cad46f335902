"""What to expect without a model: late packets and their events, counted and carried forward.

It assumes that events (clusters of packets over a level) come as a Poisson process whose rate the
horizon shares with the run, and nothing of how latencies are distributed. So it says how many
packets to expect over latencies that the run has shown. Of later ones it says how likely they are.
"""

from __future__ import annotations

import numpy as np

from tailtap.analysis.runs.tail import SECOND_NS, StoredTail
from tailtap.analysis.tail.gpd import Floats
from tailtap.analysis.tail.peaks import decluster, unevenness
from tailtap.records.tail import ExpectedRecord, ForecastLevel, ForecastRecord

#: How far counts may lie outside, at both ends together.
ERROR = 0.05
#: Events of equal size that an interval of packets needs, and that a count of events needs.
EFFECTIVE, EVENTS = 50, 10
#: An event with more than this share of the sum of squares of all sizes decides too much alone.
LARGEST = 0.2


def forecast(tail: StoredTail, levels: tuple[int, ...], horizon_ns: int) -> ForecastRecord | None:
    """What to expect in `horizon_ns` over each of `levels` (ns, above what is stored).

    None where the run has no length. With a run of length T and a horizon of h T, blocks of both
    are exchangeable: the larger maximum is the horizon's with the probability h / (1 + h), whatever
    the distribution.
    """
    run_ns = round(tail.packets * SECOND_NS / tail.rate) if tail.rate else 0
    if not run_ns:
        return None
    from scipy import stats

    ratio = horizon_ns / run_ns
    return ForecastRecord(
        horizon_ns=horizon_ns,
        run_ns=run_ns,
        exceeded=ratio / (1 + ratio),
        unseen=int(stats.nbinom.ppf(1 - ERROR, 1, 1 / (1 + ratio))),
        needed_ns=round(horizon_ns * (1 - ERROR) / ERROR),
        levels=[_over(tail, level, ratio) for level in sorted(set(levels))],
    )


def _over(tail: StoredTail, level: int, ratio: float) -> ForecastLevel:
    position = tail.position[tail.latency_ns > level]
    first = decluster(position).first
    sizes = np.diff(np.append(first, position.size)).astype(np.float64)
    uneven = unevenness(position[first], tail.packets) is not None
    return ForecastLevel(
        level_ns=level,
        packets=position.size,
        events=first.size,
        uneven=uneven,
        expected_packets=expected(sizes, ratio, EFFECTIVE, uneven),
        expected_events=expected(np.ones(first.size), ratio, EVENTS, uneven),
    )


def expected(sizes: Floats, ratio: float, enough: int, uneven: bool) -> ExpectedRecord:
    """The sum over the events of a horizon `ratio` times the run, from the `sizes` of the run's.

    The sum is counted like n events of one size s that have its mean and its variance: s is the
    sum of squares over the sum, n the square of the sum over the sum of squares (Bohm and Zech,
    Nuclear Instruments and Methods A 748, 2014). If n such events were seen, the count of those to
    come is negative binomial with n + 1/2 (Krishnamoorthy and Peng, Journal of Statistical Planning
    and Inference 141, 2011). For the upper end one event more counts, as large as the largest, as
    larger ones than the run's may come. It is supported by `enough` events of one size.
    """
    if not sizes.size:
        # Nothing is known of the sizes of events that did not come.
        high = _quantile(1 - ERROR / 2, 1, 0.5, ratio)
        return ExpectedRecord(value=0.0, low=0.0, high=high, supported=False)
    total, squares, largest = sizes.sum(), (sizes**2).sum(), sizes.max()
    number = total * total / squares
    low = _quantile(ERROR / 2, squares / total, number + 0.5, ratio)
    total_above, squares_above = total + largest, squares + largest**2
    above = total_above * total_above / squares_above
    high = _quantile(1 - ERROR / 2, squares_above / total_above, above, ratio)
    alike = bool(number >= enough and largest**2 <= LARGEST * squares)
    supported = alike and not uneven
    return ExpectedRecord(value=float(total * ratio), low=low, high=high, supported=supported)


def _quantile(p: float, size: float, number: float, ratio: float) -> float:
    from scipy import stats

    return float(size * stats.nbinom.ppf(p, number, 1 / (1 + ratio)))
