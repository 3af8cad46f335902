"""Which stretches of time are left out around pauses from outside, and which packets stay.

A stretch is chosen by when the pause was and by how many packets were in the device, never by the
latency of a packet. It begins a while before the pause, for the packets that the pause found in the
device. It ends the same while after the first packet behind the pause that found no more packets in
the device than packets usually find. In a queue, whatever came later is as late as it would have
been without the pause: both have the same work before them from the moment on in which the longer
queue is empty (regeneration; Asmussen, Applied Probability and Queues, 2003, chapters VI and X).

That moment comes when the device is least busy, and a sample that began there would have too few
late packets. So it does not begin there: it begins the while later, in which the device forgets
that it was empty. The while is the 99.9th percentile of the packets that a first pass without it
leaves.

What a pause does has an end. Below a load of 90 % the packets of a pause are served within nine
times its length, and no packet is later by more than that length. So neither the while nor the wait
for the queue is longer than ten times the pause. Without this, a pause of 30 us that falls into a
stall of the device would take the rest of the stall away.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tailtap.analysis.evaluation.values import Column

WHILE = 0.999
"""The percentile of the latency that a stretch begins earlier by, and ends later."""
MOST = 10
"""Neither of both is longer than so many times the pause."""


@dataclass(frozen=True)
class Spans:
    """Spans of time in ns that ascend and do not overlap."""

    start: Column
    end: Column

    @classmethod
    def merged(cls, start: Column, end: Column) -> Spans:
        """The same time as spans in any order, which may overlap; those without length are gone."""
        there = end > start
        order = np.argsort(start[there], kind="stable")
        starts, reach = start[there][order], np.maximum.accumulate(end[there][order])
        first = np.append(True, starts[1:] > reach[:-1]) if starts.size else np.zeros(0, bool)
        last = np.append(np.flatnonzero(first)[1:] - 1, starts.size - 1)
        return cls(starts[first], reach[last] if starts.size else reach)

    def within(self, first_ns: int, last_ns: int) -> Spans:
        """The parts of them between two times."""
        start, end = np.maximum(self.start, first_ns), np.minimum(self.end, last_ns)
        there = end > start
        return Spans(start[there], end[there])

    def has(self, times: Column) -> npt.NDArray[np.bool_]:
        """Whether each time lies in one of them, their ends left out."""
        place = np.searchsorted(self.start, times, "right") - 1
        found: npt.NDArray[np.bool_] = (place >= 0) & (times < np.append(self.end, 0)[place])
        return found

    def before(self, times: Column) -> Column:
        """How much of them lies before each time, in ns."""
        sums = np.append(0, np.cumsum(self.end - self.start))
        begun = np.searchsorted(self.start, times, side="right")
        over = np.maximum(0, np.append(self.end, 0)[begun - 1] - times) * (begun > 0)
        found: Column = sums[begun] - over
        return found

    def without(self, others: Spans) -> Spans:
        """What of this time is in none of some other spans."""
        edges = np.unique(np.concatenate([self.start, self.end, others.start, others.end]))
        start, end = edges[:-1], edges[1:]
        there = self.has(start) & ~others.has(start)
        return Spans.merged(start[there], end[there])

    @property
    def total_ns(self) -> int:
        """How much time they are."""
        return int((self.end - self.start).sum())


@dataclass(frozen=True)
class Left:
    """What is left of a run around some pauses."""

    out: Spans
    """The stretches that are left out."""
    kept: npt.NDArray[np.bool_]
    """Of each packet whether it stays, by when it came."""
    busy: npt.NDArray[np.bool_]
    """Of each packet whether it found more packets in the device than usual."""
    while_ns: int
    """By how much stretches begin earlier and end later, at most."""


def leave_out(pauses: Spans, ingress_ns: Column, latency_ns: Column) -> Left:
    """Leave out the stretches around `pauses`. Packets ascend by `ingress_ns`; some are there."""
    left = np.sort(ingress_ns + latency_ns)
    inside = np.arange(ingress_ns.size) - np.searchsorted(left, ingress_ns, "right")
    busy: npt.NDArray[np.bool_] = inside > int(np.median(inside))
    calm = ingress_ns[~busy]
    last = int(left[-1]) + 1
    drained = np.append(calm, last)[np.searchsorted(calm, pauses.end)]
    most = MOST * (pauses.end - pauses.start)
    drained = np.minimum(drained, pauses.end + most)
    out, while_ns = Spans.merged(pauses.start, drained), 0
    kept = ~out.has(ingress_ns)
    if pauses.start.size and kept.any():
        while_ns = int(np.quantile(latency_ns[kept], WHILE, method="inverted_cdf"))
        around = np.minimum(while_ns, most)
        out = Spans.merged(pauses.start - around, drained + around)
        kept = ~out.has(ingress_ns)
    return Left(out, kept, busy, while_ns)
