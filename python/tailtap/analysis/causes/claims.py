"""Which rows made packets late, and which were merely there: shifts of the same events.

Benjamini, Y. and Hochberg, Y. (1995), Controlling the false discovery rate, JRSS B 57, 289-300.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tailtap.analysis.causes.joined import Joined
from tailtap.analysis.causes.taxonomy import Served

SHIFTS = 999
SEED = 1
FALSE_CLAIMS = 0.01
"""The share of wrong claims among all claims that is expected at most."""
MOST_WINDOWS = 500
"""Stays that represent the stalls of a run."""
LEAST_TIME = 0.001
"""A row that had less time than this share of their excess is not tested: it explains nothing, and
each test more makes it harder for others to pass. That does not depend on when it had that time."""

BACKGROUND = ("task", "kernel-thread", "idle-exit", "waiting", "throttled")
"""Causes that have the core whenever nobody else wants it."""


@dataclass(frozen=True)
class Claim:
    """What shifting the events of one row found."""

    observed: float
    """Of the excess of each stall's worst packet, the share that the row covers, summed."""
    expected: float
    """The same by chance."""
    shifts: int
    p: float
    passed: bool

    @property
    def beyond_chance(self) -> float:
        """The share of what was observed that is more than chance."""
        over = self.observed - self.expected
        return max(0.0, over / self.observed) if self.observed else 0.0


def claims(joined: Joined, served: Served, span: tuple[int, int], gap_ns: int) -> dict[int, Claim]:
    """The claim of each row that occurs on the serving cores within `span`, in ns.

    `gap_ns` is the usual longest time between packets. What has the core by default (tasks, idle)
    is tested once more, by its time in stretches without service that are longer than that; of the
    two tests the row has the one with the smaller p.
    """
    totals = np.zeros(len(joined.rows.names), np.int64)
    np.add.at(totals, list(joined.rows.of_owners), joined.cores.totals(*span))
    worst = joined.stall_worst
    chosen = worst[np.linspace(0, worst.size - 1, min(worst.size, MOST_WINDOWS)).astype(np.int64)]
    excess = joined.excess_ns[chosen]
    least = max(1.0, LEAST_TIME * float(excess.sum()))
    tested = [row for row in joined.rows.tested() if totals[row] >= least]
    background = [row for row in tested if joined.rows.names[row].cause in BACKGROUND]
    if served.by == "poll":
        background = []  # who polls leaves no time to others
    # With fewer shifts a single row could not pass among so many.
    shifts = max(SHIFTS, round((len(tested) + len(background)) / FALSE_CLAIMS))
    packets = joined.stays
    windows = (
        packets.ingress_ns[chosen],
        packets.egress_ns[chosen],
        joined.cpu[chosen],
        excess,
    )
    found = [
        (row, values)
        for rows, longer_than_ns in ((tested, 0), (background, gap_ns))
        for row, values in zip(
            rows,
            joined.cores.test(
                list(joined.rows.of_owners), rows, windows, span,
                longer_than_ns=longer_than_ns, shifts=shifts, seed=SEED,
            ),
            strict=True,
        )
    ]  # fmt: skip
    passed = benjamini_hochberg([p for _, (*_, p) in found])
    best: dict[int, Claim] = {}
    for (row, values), good in zip(found, passed, strict=True):
        if row not in best or values[-1] < best[row].p:
            best[row] = Claim(*values, passed=good)
    return best


def benjamini_hochberg(ps: Sequence[float], share: float = FALSE_CLAIMS) -> list[bool]:
    """Which of the hypotheses with these p-values are rejected."""
    ordered = np.sort(np.asarray(ps, float))
    below = np.flatnonzero(ordered <= share * np.arange(1, ordered.size + 1) / max(1, ordered.size))
    limit = ordered[below[-1]] if below.size else -1.0
    return [p <= limit for p in ps]
