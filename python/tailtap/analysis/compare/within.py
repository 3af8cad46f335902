"""The uncertainty of a percentile within one run: a bootstrap of stretches of time.

Late packets come together, so that the binomial interval of a percentile, made for independent
packets, is too narrow. Here the run is cut into stretches of equal time, longer than what stalls
packets, and resampled from stretches drawn with replacement (Künsch 1989; stretches do not
overlap). The interval shows how the percentile would vary if the same minutes came again, not what
another boot or another day would bring: it is a second view, no test.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tailtap.analysis.runs.tail import StoredTail

STRETCHES = 100
SAMPLES = 1_000
#: With fewer late stretches the interval is that of a handful of accidents.
FEWEST = 10
_LEVELS = 400
_SEED = 1


@dataclass(frozen=True)
class Interval:
    """A 95 % interval of a run's percentile in ns; `reason` says why there is none."""

    low: int | None = None
    high: int | None = None
    reason: str = ""

    def widened(self, ns: int) -> Interval:
        """The interval where every latency may be off by so much to either side."""
        if self.low is None or self.high is None:
            return self
        return Interval(self.low - ns, self.high + ns)


def interval(tail: StoredTail, p: float) -> Interval:
    """The 95 % block bootstrap interval of the percentile `p` (0 to 1) of a run."""
    blocks = tail.blocks
    # To the block that counts it: a stretch has whole blocks.
    egress = (tail.ingress_ns + tail.latency_ns) // blocks.width_ns * blocks.width_ns
    start, end = int(blocks.start_ns[0]), int(blocks.start_ns[-1]) + blocks.width_ns
    width = -(-(end - start) // STRETCHES)
    packets = np.bincount((blocks.start_ns - start) // width, blocks.packets, STRETCHES)
    above = tail.packets - max(int(np.ceil(p * tail.packets)), 1)
    if 2 * above + FEWEST > tail.latency_ns.size:
        return Interval(reason="the evaluation keeps too few latencies for this percentile")
    order = np.argsort(-tail.latency_ns, kind="stable")[: 5 * above + 200]
    stretch = np.clip((egress[order] - start) // width, 0, STRETCHES - 1)
    if np.unique(stretch[: above + 1]).size < FEWEST:
        return Interval(
            reason=f"its latest packets lie in fewer than {FEWEST} of {STRETCHES} "
            "stretches of the run"
        )
    # How many of each stretch are among the largest 1, 2, … at some hundred places.
    places = np.unique(np.linspace(0, order.size - 1, _LEVELS).astype(np.int64))
    cuts = np.zeros((places.size, STRETCHES))
    np.add.at(cuts, (np.searchsorted(places, np.arange(order.size)), stretch), 1)
    counts = np.cumsum(cuts, axis=0)
    random = np.random.default_rng(_SEED)
    draws = random.multinomial(STRETCHES, np.full(STRETCHES, 1 / STRETCHES), SAMPLES).T
    drawn = packets @ draws
    wanted = drawn - np.maximum(np.ceil(p * drawn), 1)
    # The first place with more packets than lie above the percentile.
    found = (counts @ draws > wanted).argmax(axis=0)
    reached = (counts[-1] @ draws) > wanted
    values = np.where(reached, tail.latency_ns[order][places[found]], tail.floor_ns)
    low, high = np.quantile(values, (0.025, 0.975), method="inverted_cdf")
    return Interval(int(low), int(high))
