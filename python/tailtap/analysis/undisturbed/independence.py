"""Whether pauses from outside came when they liked, or when the device was busy.

Leaving out is fair to the device only if pauses do not look at what it does. A host that takes the
core of whoever used it most, for one, pauses a device when it has much to do: what is left is then
its easier time. So the load just before pauses is held against that before the same pauses at other
times: those of each twentieth of the run are shifted together by a random time, around the end of
the run. That keeps how they come in groups. One shift for all, as in `causes.claims`, would keep
them in step with a load that comes and goes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tailtap.analysis.evaluation.values import Column
from tailtap.analysis.undisturbed.stretches import Left, Spans

SHIFTS = 999
SEED = 1
LEAST_P = 0.01
"""With a smaller p pauses depend on the load: of 100 runs in which they do not, one is refused."""
BLOCKS, FEWEST = 20, 5
"""Into so many parts a run is cut. Pauses in fewer of them than this show nothing."""
WINDOWS = (64, 512, 4096)
"""The time before a pause that is looked at, in mean gaps between packets."""
MOST = 2_000
"""So many pauses are looked at, evenly over the run."""
MARGIN = 0.05
"""A load that differs by no more than this part of the usual one does not count: at a constant pace
the test would see parts of a packet, as stretches end when one comes."""
PART = 0.1
"""At most this part of a run is looked at."""

Floats = npt.NDArray[np.float64]


def independence(pauses: Spans, left: Left, ingress_ns: Column) -> float | None:
    """The p-value of pauses that do not depend on the load; None where they are too few to tell.

    The load is how many packets came in a window before the pause, and which part of them found the
    device busier than usual, both of what is left. The largest deviation of all, by their own
    spread over shifts, counts (Westfall and Young, Resampling-based multiple testing, 1993).
    """
    first, last = int(ingress_ns[0]), int(ingress_ns[-1])
    length = last - first
    if length <= 0:
        return None
    begins = pauses.start[(pauses.start > first) & (pauses.start < last)] - first
    begins = begins[np.linspace(0, begins.size - 1, min(begins.size, MOST)).astype(np.int64)]
    block = begins * BLOCKS // length
    if np.unique(block).size < FEWEST or not left.kept.any():
        return None
    came = ingress_ns[left.kept] - first
    busy = np.append(0, np.cumsum(left.busy[left.kept]))
    gap = length / ingress_ns.size
    windows = sorted({min(int(count * gap), int(PART * length)) for count in WINDOWS})
    shifts = np.random.default_rng(SEED).integers(1, length, (SHIFTS, BLOCKS))
    out = Spans(left.out.start - first, left.out.end - first).within(0, length)

    def loads(shift: Column) -> list[float]:
        until = (begins + shift[block]) % length - left.while_ns
        found = []
        for window in windows:
            since = np.maximum(until - window, 0)
            here = until > since
            one, other = (np.searchsorted(came, side[here]) for side in (since, until))
            packets = int((other - one).sum())
            times = (side[here] - out.before(side[here]) for side in (since, until))
            kept_ns = -int(np.subtract(*times).sum())
            found.append(packets / kept_ns if kept_ns else 0.0)
            found.append(float((busy[other] - busy[one]).sum()) / packets if packets else 0.0)
        return found

    observed, by_chance = np.array(loads(0 * shifts[0])), np.array([loads(one) for one in shifts])
    mean, spread = by_chance.mean(axis=0), by_chance.std(axis=0)
    told = spread > 0
    if not told.any():
        return 1.0

    def far(loads: Floats) -> Floats:
        beyond = np.abs(loads - mean)[..., told] - MARGIN * mean[told]
        most: Floats = (np.maximum(beyond, 0) / spread[told]).max(axis=-1)
        return most

    return (1 + int((far(by_chance) >= far(observed)).sum())) / (1 + SHIFTS)
