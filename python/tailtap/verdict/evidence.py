"""What one run says: counts, its distribution as far as it is known, and warnings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from tailtap.evaluation.values import Histogram, Pair, Percentile, Warning
from tailtap.results.tail import StoredTail
from tailtap.tail.analysis import Options, TailModel, analyse
from tailtap.units import format_time
from tailtap.verdict.shares import design_effect

#: Warnings that say that a packet may have arrived although it counts as lost.
_LOSS_UNSURE = {
    "stamps-lost": "stamps are missing, and these may have arrived",
    "tap-lost": "stamps are missing, and these may have arrived",
    "tap-unclosed": "stamps may be missing, and these may have arrived",
    "tap-drops": "packets were dropped behind the device, and may be these",
    "unmatched-egress": "packets after the device could not be matched, and may be these",
}
#: Published counts are of two captures, the difference of which is called lost.
PUBLISHED_LOSS = "published counts are of two captures, which need not begin and end together"


@dataclass(frozen=True)
class Evidence:
    """One run; latencies in ns. What nobody says is None, or empty."""

    name: str
    #: Why the run shows nothing at all.
    refusal: str | None = None
    #: Packets that latencies are of, and the largest and the mean of these.
    packets: int | None = None
    maximum: int | None = None
    mean: float | None = None
    #: Packets before the device whose fate could be known.
    offered: int | None = None
    #: Packets by the names of the evaluation's counts.
    counts: Mapping[str, int] = field(default_factory=dict)
    #: The exact distribution, or else percentiles, ascending, with how many packets are above.
    distribution: Pair | None = None
    percentiles: Sequence[Percentile] = ()
    #: Gaps after the device.
    gaps: Histogram | None = None
    #: Packets a second before the device.
    rate: float | None = None
    tail: StoredTail | None = None
    #: Why there is no `tail`.
    without_tail: str = ""
    warnings: tuple[Warning, ...] = ()
    #: Whether it was imported from result files of others.
    published: bool = False
    #: What every latency may be off by, to either side: more than 0 where the clocks are two.
    within_ns: int = 0

    @property
    def lost(self) -> tuple[int, int] | None:
        """The fewest and the most packets that did not arrive; None where nobody says."""
        lost = self.counts.get("lost")
        if lost is None or self.packets is None:
            return None
        # Published counts may have packets without a latency that they do not call lost.
        most = max(lost, (self.offered or 0) - self.packets, 0)
        return (0 if self.loss_unsure else lost), most

    @property
    def loss_unsure(self) -> str:
        """Why packets that count as lost may have arrived; empty where they did not."""
        if self.published:
            return PUBLISHED_LOSS
        codes = (warning.code for warning in self.warnings)
        return next((_LOSS_UNSURE[code] for code in codes if code in _LOSS_UNSURE), "")

    @property
    def times_unsure(self) -> str:
        """Why packets may have been late that look as if not, or the other way; or empty."""
        if not self.within_ns:
            return ""
        within = format_time(self.within_ns)
        return f"latencies may be off by {within} to either side, as the clocks are two"

    @property
    def unmeasured(self) -> int:
        """Packets that had a latency that nobody knows."""
        # What published counts call lost may lie outside of the other capture.
        return 0 if self.lost is None else self.lost[0 if self.published else 1]

    def late(self, limit: int, *, strict: bool) -> tuple[int, int] | None:
        """The fewest and the most packets above `limit` or, if `strict`, not below it.

        Published percentiles tell bounds only, and so do two clocks. None where there is nothing
        to count.
        """
        least = limit if strict else limit + 1
        if self.distribution is not None:
            values, numbers = self.distribution
            ends = (least + self.within_ns, least - self.within_ns)
            fewest, most = (int(numbers[np.searchsorted(values, end) :].sum()) for end in ends)
            return fewest, most
        if self.packets is None or not self.percentiles:
            return None
        # No packet of a rank up to a percentile below the limit is late; and every one from a
        # percentile at or beyond it on.
        most = min([row.above for row in self.percentiles if row.value < least] + [self.packets])
        fewest = max([row.above + 1 for row in self.percentiles if row.value >= least] + [0])
        return fewest, most

    def percentile(self, p: Fraction) -> int | None:
        """The percentile `p` (0 to 1) by nearest rank, where it is known."""
        if self.distribution is None:
            return next((row.value for row in self.percentiles if row.p == float(p)), None)
        values, numbers = self.distribution
        upto = np.cumsum(numbers)
        return int(values[np.searchsorted(upto, math.ceil(p * int(upto[-1])))])

    def late_gaps(self, limit: int, *, strict: bool) -> tuple[int, int, int]:
        """The fewest and the most gaps above `limit` (see `late`), and all. They are in buckets."""
        if self.gaps is None:
            return 0, 0, 0
        least = limit if strict else limit + 1
        edges, numbers = self.gaps.edges, self.gaps.counts
        surely = int(numbers[edges >= least].sum())
        maybe = int(numbers[edges + self.gaps.width > least].sum())
        return surely, maybe, int(numbers.sum())

    def effect(self, limit: int) -> float:
        """The design effect of clusters of packets not below `limit`; 1 where nothing tells it."""
        if self.tail is None:
            return 1.0
        return design_effect(self.tail.position, self.tail.latency_ns, self.tail.packets, limit)

    def model(self, horizon: int) -> TailModel | None:
        """The tail model, with the level that is exceeded once in `horizon` ns."""
        return None if self.tail is None else analyse(self.tail, Options(horizons=(horizon,)))
