"""What the tail would be without a cause's time: an estimate, as nothing may take its place."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from tailtap.analysis.causes.joined import BEHIND, OWN, QUEUED, Joined
from tailtap.analysis.causes.labels import Labels
from tailtap.analysis.causes.taxonomy import SERVING, Named
from tailtap.analysis.evaluation.percentiles import label
from tailtap.analysis.evaluation.values import Column
from tailtap.analysis.runs.run import Run
from tailtap.records.units import format_time

DEFAULT_P = 0.999
NAME = "if nothing else took its place"
"""What the estimate takes for granted."""


@dataclass(frozen=True)
class Without:
    """A percentile and the largest latency of a run, as measured and without some causes' time."""

    p: float
    measured_ns: int
    percentile_ns: int
    measured_worst_ns: int
    worst_ns: int
    least_ns: int
    """Slower packets than this are known one by one: a value of it is an upper bound."""

    def as_json(self) -> dict[str, Any]:
        """Its values."""
        return vars(self)

    @property
    def words(self) -> str:
        """It as people read it."""
        now, worst = format_time(self.measured_ns), format_time(self.measured_worst_ns)
        then, left = self._bound(self.percentile_ns), self._bound(self.worst_ns)
        return f"{label(self.p)} {now} to {then}, worst {worst} to {left}"

    def _bound(self, value_ns: int) -> str:
        return ("at most " if value_ns <= self.least_ns else "") + format_time(value_ns)


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
            self.p, measured, min(measured, max(value, least)), stored.max,
            max(int(falling[0]), least), least,
        )  # fmt: skip

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
