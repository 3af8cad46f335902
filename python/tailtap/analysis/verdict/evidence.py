"""What one run says: counts, its distribution as far as it is known, and warnings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from tailtap.analysis.evaluation.clocks import Within
from tailtap.analysis.evaluation.values import NOTHING_UNREAD, Histogram, Pair, Unread
from tailtap.analysis.runs.tail import StoredTail
from tailtap.analysis.tail.analysis import Options, TailModel, analyse
from tailtap.analysis.verdict.requirement import Requirement
from tailtap.analysis.verdict.shares import design_effect
from tailtap.base.units import format_count, format_time
from tailtap.records.evaluation import Percentile
from tailtap.records.record import Notice
from tailtap.records.run import Blocked, Event
from tailtap.records.verdict import Answer

#: Warnings that say that a packet may have arrived although it counts as lost.
_LOSS_UNSURE = {
    "stamps-lost": "stamps are missing, and these may have arrived",
    "tap-lost": "stamps are missing, and these may have arrived",
    "tap-unclosed": "stamps may be missing, and these may have arrived",
    "capture-damaged": "a capture is damaged, and these may have arrived",
    "capture-growing": "a capture had not ended, and these may have arrived",
    "tap-drops": "packets were dropped behind the device, and may be these",
    "payload-changed": "the device changes payloads, and may have put these into others",
}
#: Those that an evaluation tells of by side and number.
_TOLD = frozenset(("tap-lost", "tap-unclosed", "capture-damaged", "capture-growing"))
#: Published counts are of two captures, the difference of which is called lost.
PUBLISHED_LOSS = "published counts are of two captures, which need not begin and end together"


@dataclass(frozen=True)
class Evidence:
    """One run; latencies in ns. What nobody says is None, or empty."""

    name: str
    #: Why the run shows nothing at all.
    refusal: str | None = None
    #: Packets, or good answers, that latencies are of, and the largest and the mean of these.
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
    #: Gaps after the device, and before it.
    gaps: Histogram | None = None
    gaps_before: Histogram | None = None
    #: Packets a second before the device.
    rate: float | None = None
    tail: StoredTail | None = None
    #: Why there is no `tail`.
    without_tail: str = ""
    warnings: tuple[Notice, ...] = ()
    #: Whether it was imported from result files of others.
    published: bool = False
    #: What every latency may be off by, to either side, and why.
    within: Within = field(default_factory=Within)
    #: The step of the stamps after the device.
    egress_step_ns: int = 1
    before: Unread = NOTHING_UNREAD
    after: Unread = NOTHING_UNREAD
    #: Whether the evaluation says what was not read of which side; published files do not.
    unread_told: bool = False
    #: What was done to the device on purpose.
    events: Sequence[Event] = ()

    @property
    def seen_after(self) -> int | None:
        """The most packets that left the device and have no latency, by what is known after it.

        None where nothing bounds them.
        """
        if self.after.without_end or self._missing:
            return None
        return self.counts.get("unmatched_egress", 0) + self.after.packets

    @property
    def _missing(self) -> str:
        """Why packets may have arrived of which nothing else tells; or empty."""
        codes = [warning.code for warning in self.warnings if warning.code in _LOSS_UNSURE]
        told = _TOLD if self.unread_told else frozenset()
        return next((_LOSS_UNSURE[code] for code in codes if code not in told), "")

    @property
    def hidden(self) -> int:
        """The most packets that passed the device and whose latency nobody knows.

        Such a packet is missing on both sides: after the device it was not matched or not read, and
        before it, it counts as lost, was left out as its key repeats, or was not read. Packets
        stamped before they came have no latency either.
        """
        counts = self.counts
        early = counts.get("noncausal", 0)
        after = self.seen_after
        here = counts.get("lost", 0) + counts.get("duplicate_ingress", 0) + self.before.packets
        if "lost" not in counts or self.before.without_end:
            unmatched = counts.get("unmatched_egress", 0)
            return early + (unmatched + here if after is None else after)
        return early + (here if after is None else min(after, here))

    @property
    def hidden_why(self) -> str:
        """What is said of such packets; empty without any."""
        if not self.hidden:
            return ""
        found = [
            f"{format_count(self.counts[name], 'packet')} after the device {what}"
            for name, what in (
                ("unmatched_egress", "without a match before it"),
                ("noncausal", "with stamps that are too early"),
            )
            if self.counts.get(name)
        ]
        found += [
            f"some {side} were not read"
            for side, unread in (("before it", self.before), ("after it", self.after))
            if unread.any
        ]
        found = found or [self.loss_unsure or "packets were not matched"]
        return f"{', '.join(found)}: their latency is unknown"

    @property
    def lost(self) -> tuple[int, int] | None:
        """The fewest and the most packets that did not arrive; None where nobody says."""
        lost = self.counts.get("lost")
        if lost is None or self.packets is None:
            return None
        # Published counts may have packets without a latency that they do not call lost.
        told = self.errors is not None  # and what has no latency for another reason failed
        most = lost if told else max(lost, (self.offered or 0) - self.packets, 0)
        arrived = self.seen_after
        fewest = 0 if self.published or arrived is None else max(lost - arrived, 0)
        return fewest, most + self.before.packets

    @property
    def errors(self) -> int | None:
        """Requests that failed or were not answered; None where nobody says."""
        return self.counts.get("errors")

    @property
    def among(self) -> int:
        """The most of them that may be among the latencies."""
        return self.counts.get("errors_timed", 0)

    @property
    def gone(self) -> tuple[int, int] | None:
        """The fewest and the most that did not arrive, or failed; None where nobody says."""
        if self.errors is None or self.packets is None:
            return self.lost
        return self.errors, max(self.errors, (self.offered or 0) - self.packets)

    @property
    def loss_unsure(self) -> str:
        """Why packets that count as lost may have arrived; empty where they did not."""
        if self.published:
            return PUBLISHED_LOSS
        if self._missing:
            return self._missing
        if self.after.any or self.before.any:
            if any(warning.code == "open-requests" for warning in self.warnings):
                return "the capture ended before their answers were overdue"
            return "packets were not read, and may be these"
        if self.counts.get("unmatched_egress"):
            return "packets after the device could not be matched, and may be these"
        return ""

    @property
    def times_unsure(self) -> str:
        """Why packets may have been late that look as if not, or the other way; or empty."""
        if not self.within.ns:
            return ""
        within = format_time(self.within.ns)
        why = [] if not self.within.clocks_ns else ["the clocks are two"]
        if self.within.resolution_ns:
            why.append(f"the stamps come in steps of {format_time(self.within.resolution_ns)}")
        return f"latencies may be off by {within} to either side, as {' and '.join(why)}"

    def late(self, limit: int, *, strict: bool) -> tuple[int, int] | None:
        """The fewest and the most packets above `limit` or, if `strict`, not below it.

        Published percentiles tell bounds only, and so do two clocks. None where there is nothing
        to count.
        """
        least = limit if strict else limit + 1
        if self.distribution is not None:
            values, numbers = self.distribution
            ends = (least + self.within.ns, least - self.within.ns)
            fewest, most = (int(numbers[np.searchsorted(values, end) :].sum()) for end in ends)
            return fewest, most
        if self.packets is None or not (self.percentiles or self.counts.get("matched") == 0):
            return None
        whole = self.packets + self.among
        # No packet of a rank up to a percentile below the limit is late; and every one from a
        # percentile at or beyond it on.
        most = min([row.above for row in self.percentiles if row.value < least] + [whole])
        fewest = max([row.above + 1 for row in self.percentiles if row.value >= least] + [0])
        return max(fewest - self.among, 0), min(most, self.packets)

    def percentile(self, p: Fraction) -> int | None:
        """The percentile `p` (0 to 1) by nearest rank, where it is known."""
        if self.distribution is None:
            return next((row.value for row in self.percentiles if row.p == float(p)), None)
        values, numbers = self.distribution
        upto = np.cumsum(numbers)
        return int(values[np.searchsorted(upto, math.ceil(p * int(upto[-1])))])

    def late_gaps(self, limit: int, *, strict: bool) -> tuple[int, int, int]:
        """The fewest and the most gaps above `limit` (see `late`), and all. They are in buckets.

        Stamps in steps leave each open by a step. A packet that was not read may split a gap in
        two, and one that is of no packet before the device may have split one.
        """
        if self.gaps is None:
            return 0, 0, 0
        least = limit if strict else limit + 1
        edges, numbers = self.gaps.edges, self.gaps.counts
        step = self.egress_step_ns if self.egress_step_ns > 1 else 0
        ends = edges + self.gaps.width
        surely = int(numbers[edges >= least + step].sum())
        maybe = int(numbers[ends > least - step].sum())
        unsure = self.between
        # Gaps do not become longer than the capture by being joined.
        joined = min(unsure, int((ends * numbers).sum()) // max(least - step, 1))
        return max(surely - unsure, 0), maybe + joined, int(numbers.sum()) + unsure

    @property
    def between(self) -> int:
        """Packets after the device that may belong between others, or may not."""
        return self.counts.get("unmatched_egress", 0) + self.after.packets

    @property
    def between_why(self) -> str:
        """What is said of such packets; empty without any."""
        if not self.between:
            return ""
        return (
            f"{format_count(self.between, 'packet')} after the device, without a match before it "
            "or not read, may belong between others or not"
        )

    def unordered(self) -> int:
        """Packets after the device whose order nobody knows: stamped in the same step as others."""
        if self.within.resolution_ns == 0 or self.gaps is None:
            return 0
        sides = [self.gaps] if self.gaps_before is None else [self.gaps, self.gaps_before]
        # Stamps in different steps are in their order.
        return sum(int(side.counts[side.edges == 0].sum()) for side in sides)

    def effect(self, limit: int) -> float:
        """The design effect of clusters of packets not below `limit`; 1 where nothing tells it."""
        if self.tail is None:
            return 1.0
        return design_effect(self.tail.position, self.tail.latency_ns, self.tail.packets, limit)

    def model(self, horizon: int) -> TailModel | None:
        """The tail model, with the level that is exceeded once in `horizon` ns."""
        return None if self.tail is None else analyse(self.tail, Options(horizons=(horizon,)))


ANY = "event"
"""Stands for all events, whatever they are called."""


def events_of(requirement: Requirement, run: Evidence) -> Sequence[Event]:
    """The events that a requirement is about."""
    return [event for event in run.events if requirement.of in (ANY, event.name)]


def judged(requirement: Requirement, events: Sequence[Event]) -> tuple[Answer, str, str]:
    """The answer, why, and what was measured, of one event or more: the longest block counts."""
    failed = next((event for event in events if event.status != 0), None)
    blocks = [event.blocked for event in events if event.blocked is not None]
    longest = max(
        blocks, key=lambda one: (one.most_ns is None, one.most_ns or 0, one.least_ns), default=None
    )
    surely = max(blocks, key=lambda one: one.least_ns, default=None)
    measured = "0 s" if longest is None else span(longest)
    limit = int(requirement.limit) - (1 if requirement.strict else 0)
    if surely is not None and surely.least_ns > limit:
        return "violated", f"nothing came out for {span(surely)}", measured
    if failed is not None:
        return "not shown", f"the event {failed.name} did not succeed", measured
    if longest is not None and (longest.most_ns is None or longest.most_ns > limit):
        return "not shown", f"nothing came out for {measured}, as far as packets tell", measured
    many = "the event" if len(events) == 1 else f"{len(events)} events"
    return "holds", f"around {many} nothing came out for {measured} at most", measured


def span(block: Blocked) -> str:
    """How long a block lasted, and within which bounds that is known."""
    if block.ns is None or block.most_ns is None:
        return f"{format_time(block.least_ns)} or more (nothing came out any more)"
    low, high = format_time(block.least_ns), format_time(block.most_ns)
    return f"{format_time(block.ns)} ({low} to {high})"
