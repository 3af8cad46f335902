"""The first and the last moments of an observation, in which one tap saw packets and the other one
did not.

Taps are attached one after the other. A packet on its way then is stamped behind the device and not
before it, or before it and not behind it: without this it would count as unmatched, or as lost.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tailtap.records.stamps import keep, read_marks

WAY_NS = 5_000_000_000
"""No packet is in the device for longer: the window of an evaluation."""


def cut(
    ingress: Path, egress: Path, since_ns: int, until_ns: int, *, below: Path
) -> tuple[int, int]:
    """Leave of two files of marks the packets that came before the device between two moments, and
    what came of them.

    Both taps were there from `since_ns` on, and for a while after `until_ns`. Returns how many are
    left of each. Raises `InputError`.
    """
    before, behind = read_marks(ingress), read_marks(egress)
    came, left = before["time_ns"], behind["time_ns"]
    kept = (came >= since_ns) & (came <= until_ns)
    early, late = came < since_ns, kept & (came > max(0, until_ns - WAY_NS))
    chosen = left >= since_ns
    # What was in the device already, and what came into it too late to be seen to the end.
    first = chosen & (left < since_ns + WAY_NS)
    last = left > until_ns
    own = before["key"][kept & (came < since_ns + WAY_NS)]
    others = np.setdiff1d(before["key"][early], own)
    chosen[first] &= ~np.isin(behind["key"][first], others)
    chosen[last] &= np.isin(behind["key"][last], before["key"][late])
    keep(ingress, before, kept, below=below)
    keep(egress, behind, chosen, below=below)
    return int(kept.sum()), int(chosen.sum())
