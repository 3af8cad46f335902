"""What n packets of which k were too late say about the share of late packets.

Exact one-sided bounds of a binomial proportion (Clopper and Pearson, Biometrika 26, 1934). Late
packets come in clusters, and a cluster is hardly more evidence than one packet: counts are divided
by a design effect first (Rao and Scott, Biometrics 48, 1992), so k and n need not be whole.
"""

from __future__ import annotations

import math

import numpy as np

from tailtap.analysis.evaluation.values import Column
from tailtap.analysis.tail.peaks import decluster
from tailtap.records.verdict import Answer

#: A run too short to be allowed so many late packets shows nothing: evaluations call the percentile
#: unsupported, and a cause that comes in clusters is easily missed.
SUPPORT = 10
_NEAR = 1e-13
"""How exactly a bound is found, as a share of it."""
#: So many of the largest latencies tell how late packets cluster, where fewer are late.
ENOUGH = 500
#: More packets than this share are no clusters of late ones.
MOST = 0.02


def upper(k: float, n: float, confidence: float) -> float:
    """What the share of late packets is below with this `confidence`; 1 without a packet."""
    if k >= n:
        return 1.0
    return _quantile(k + 1, n - k, confidence)


def lower(k: float, n: float, confidence: float) -> float:
    """What the share of late packets is above with this `confidence`."""
    return _quantile(k, n - k + 1, 1 - confidence) if k > 0 else 0.0


def _quantile(a: float, b: float, share: float) -> float:
    """What a beta distribution is below with the probability `share`.

    By halving: the inverse that scipy has is off by a tenth and more where b is 10^9 and a 1000.
    """
    from scipy import special  # takes a quarter of a second to load

    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2) < high and high - low > _NEAR * high:
        low, high = (middle, high) if special.betainc(a, b, middle) < share else (low, middle)
    return high


def judge(
    late: tuple[int, int], n: int, allowed: float, effect: float, confidence: float
) -> Answer:
    """Whether at most the share `allowed` of packets is late.

    `late` are the fewest and the most packets of `n` that were. To hold, the bound from the most,
    corrected for clusters by `effect`, must not be above `allowed`, and the run not too short. A
    run that misses it by more than chance among independent packets explains is a violation, in
    clusters or not: no proof is needed of what other runs would do.
    """
    fewest, most = late
    if n >= supporting(allowed) and upper(most / effect, n / effect, confidence) <= allowed:
        return "holds"
    if n and lower(fewest, n, confidence) > allowed:
        return "violated"
    return "not shown"


def supporting(allowed: float) -> int:
    """The fewest packets of which `SUPPORT` may be late."""
    return math.ceil(SUPPORT / allowed * (1 - 1e-12))


def needed(late: int, allowed: float, effect: float, confidence: float) -> int:
    """How many packets show that at most the share `allowed` (above 0) is late, if no more are.

    `late` have been so far.
    """
    from scipy import special

    k = late / effect

    def shown(n: float) -> bool:
        return n > k and float(special.betainc(k + 1, n - k, allowed)) >= confidence

    high = k + 1
    while not shown(high):
        high *= 2
    low = high / 2
    while effect * (high - low) > 0.5:
        middle = (low + high) / 2
        low, high = (low, middle) if shown(middle) else (middle, high)
    enough = max(math.ceil(effect * high), supporting(allowed))
    # Rounding can make it a packet short of what `judge` asks for.
    while judge((late, late), enough, allowed, effect, confidence) != "holds":
        enough += 1
    return enough


def design_effect(position: Column, latency: Column, packets: int, limit: float) -> float:
    """How many times less a late packet says than if packets were independent.

    The mean size of the cluster that a late packet is in. `position` and `latency` (ns) are of a
    run's largest latencies, `packets` is how many it had, `limit` (ns) is where packets become
    late. Where few or none are, the largest latencies take their place; the larger effect counts.
    """
    late = position[latency >= limit]
    most = int(MOST * packets)
    found = [1.0]
    if 2 <= late.size <= most:
        found.append(_burst_size(late))
    wanted = min(ENOUGH, most, latency.size)
    if not wanted <= late.size <= most and wanted >= 2:
        largest = np.partition(latency, latency.size - wanted)[latency.size - wanted]
        highest = position[latency >= largest]
        if highest.size <= most:
            found.append(_burst_size(highest))
    return max(found)


def _burst_size(position: Column) -> float:
    """The mean, over exceedances at these places, of the size of their cluster."""
    bursts = decluster(position)
    sizes = np.diff(np.append(bursts.first, position.size)).astype(np.float64)
    return float((sizes**2).sum() / sizes.sum())
