"""What the tail would be without a cause's time: an estimate, as nothing may take its place."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from tailtap.analysis.causes.joined import BEHIND, OWN, QUEUED, Joined
from tailtap.analysis.causes.labels import Labels
from tailtap.analysis.causes.taxonomy import SERVING, Named
from tailtap.analysis.evaluation.values import Column
from tailtap.analysis.runs.run import Run
from tailtap.records.causes import Without

DEFAULT_P = 0.999


@dataclass(frozen=True)
class Removal:
    """Takes the time of causes out of the latencies of late packets, to the nanosecond."""

    run: Run
    joined: Joined
    labels: Labels
    p: float

    def without(self, causes: Collection[Named]) -> Without:
        """The order statistics again, with each packet's latency less these causes' parts.

        What a packet behind a stall, or in a queue, waited while its core served is its cause's.
        Packets that are not known one by one may be as slow as the fastest that are.
        """
        late, stored = self.joined.late, self.run.stored
        latency = late.packets.latency_ns - self._parts(causes)
        falling = np.sort(latency)[::-1]
        matched = stored.counts.matched
        above = matched - max(1, math.ceil(self.p * matched - 1e-9))
        value = int(falling[above]) if above < falling.size else 0
        least, measured = late.threshold_ns, stored.percentile(self.p).value
        return Without(
            p=self.p,
            measured_ns=measured,
            percentile_ns=min(measured, max(value, least)),
            measured_worst_ns=stored.max,
            worst_ns=max(int(falling[0]), least),
            least_ns=least,
        )

    def _parts(self, causes: Collection[Named]) -> Column:
        """What these causes have of each late packet, in ns."""
        joined, labels = self.joined, self.labels
        rows = {row for row, name in enumerate(labels.names) if name in causes}
        counted = np.isin(joined.part_row, sorted(rows))
        served = joined.part_row == SERVING
        waited = np.isin(joined.state, (BEHIND, OWN, QUEUED)) & np.isin(labels.blamed, sorted(rows))
        counted |= served & waited[joined.of_packets()]
        sums = np.zeros(joined.state.size, np.int64)
        np.add.at(sums, joined.of_packets()[counted], joined.part_ns[counted])
        return sums
