"""One evaluation and the samples of its interrupt counters: the finding, and how far it goes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from tailtap.analysis.clocks.host import HostClock
from tailtap.analysis.evaluation import Evaluation
from tailtap.analysis.interrupts.association import (
    LEAST_WINDOWS,
    LEVEL,
    Suggestion,
    associated,
    described,
    own_effect,
    suggest,
)
from tailtap.analysis.interrupts.windows import Late, Windows, windows_of
from tailtap.base.units import format_time
from tailtap.records.interrupts import (
    Answer,
    CounterRow,
    InterruptsRun,
    LateRow,
    OffsetRow,
    OffsetSource,
    SamplerRow,
    Samples,
    SamplesRow,
    Took,
)

"""Why an offset is what it is: one clock for both, two that were compared, somebody's word, the
data."""

WORST = 5000
"""How many of the worst packets are late, at most; as in the papers' figures."""
WORST_SHARE = 100
"""And at most every so many-th packet."""


@dataclass(frozen=True)
class Options:
    """How runs are looked at."""

    offset_ns: int | None = None
    """What to add to a sample's time for the capture's; None where only the data can tell."""
    worst: int | None = None
    """How many of the worst packets are late; by default `WORST`, and 1 % of all at most."""


@dataclass(frozen=True)
class Finding:
    """What the samples say about the late packets of one run."""

    slug: str
    samples: int
    took_ns: tuple[int, int] | None
    """The median and the longest sample, where the file says."""
    source: OffsetSource
    offset_ns: int | None
    """None where it cannot be told."""
    suggestion: Suggestion | None
    bounds_ns: tuple[int, int] | None
    """Between which offsets the truth lies, where two clocks were compared."""
    windows: Windows
    """Those that the captures cover, on their clock; all of the samples without an offset."""
    late: Late
    counters: tuple[CounterRow, ...]
    """Those that rose, the most surely associated first."""
    own_effect: SamplerRow | None
    reason: str | None
    """Why nothing can be told; None where something can."""
    threshold_ns: int = field(default=0)
    """The least latency of a late packet."""

    @cached_property
    def answer(self) -> Answer:
        """Whether any counter rises where packets are late."""
        if self.reason is not None:
            return "cannot-tell"
        return "associated" if any(row.associated for row in self.counters) else "none"

    @property
    def record(self) -> InterruptsRun:
        """The run in what `tailtap interrupts --json` prints."""
        found, took = self.suggestion, self.took_ns
        suggested = None if found is None else (found.low_ns, found.high_ns)
        low, high = self.bounds_ns or suggested or (None, None)
        return InterruptsRun(
            run=self.slug,
            answer=self.answer,
            reason=self.reason,
            samples=SamplesRow(
                number=self.samples,
                period_ns=self.windows.period_ns,
                windows=self.windows.number,
                took_ns=None if took is None else Took(median=took[0], max=took[1]),
            ),
            offset=OffsetRow(
                ns=self.offset_ns,
                source=self.source,
                best_ns=None if found is None else found.best_ns,
                low_ns=low,
                high_ns=high,
                p_value=None if found is None else found.p_value,
                searched_ns=None if found is None else list(found.searched_ns),
            ),
            late=LateRow(packets=len(self.late.ingress_ns), threshold_ns=self.threshold_ns),
            counters=list(self.counters),
            sampler=self.own_effect,
        )


def analyse(
    slug: str,
    evaluation: Evaluation,
    samples: Samples,
    *,
    one_clock: bool = False,
    clock: HostClock | None = None,
    options: Options | None = None,
) -> Finding:
    """Look for counters that rise where packets were late.

    `one_clock`: stamps and samples are of the same clock, so that nothing has to be found out.
    `clock` is that of the samples where it was compared with that of the stamps.
    """
    options = options or Options()
    late = _late(evaluation, options.worst)
    if clock is not None and options.offset_ns is None:
        return _compared(slug, evaluation, samples, clock, options)
    everywhere = windows_of(samples)
    suggestion: Suggestion | None = None
    offset: int | None
    source: OffsetSource = "given" if options.offset_ns is not None else "suggested"
    if options.offset_ns is not None:
        offset = options.offset_ns
    elif one_clock:
        offset, source = 0, "clock"
    else:
        suggestion = suggest(everywhere, late)
        offset = suggestion.best_ns if suggestion is not None and suggestion.tells else None
    windows = everywhere
    if offset is not None:
        windows = windows_of(samples, offset).within(late.first_ns, late.last_ns)
    reason = _reason(windows, late, offset, suggestion)
    counters: list[CounterRow] = []
    if offset is not None and windows.number and suggestion is not None:
        p_values = [suggestion.counters.get(name) for name in windows.names]
        counters = described(windows, late, p_values)
    elif offset is not None and reason is None:
        counters = associated(windows, late)
    elif offset is not None and windows.number:
        counters = described(windows, late)
    took = samples.took_ns
    starts = np.array(samples.times_ns, np.int64)
    return Finding(
        slug,
        len(samples.times_ns),
        None if took is None else (int(np.median(took)), max(took)),
        source,
        offset,
        suggestion,
        None,
        windows,
        late,
        tuple(counters),
        own_effect(starts + offset, np.array(took, np.int64), late)
        if took is not None and offset is not None
        else None,
        reason,
        int(late.latency_ns.min()) if late.latency_ns.size else 0,
    )


def _compared(
    slug: str, evaluation: Evaluation, samples: Samples, clock: HostClock, options: Options
) -> Finding:
    """What samples of another clock say, told by that of the stamps."""
    theirs = np.array(samples.times_ns, np.int64)
    ours = clock.stamps_ns(theirs)
    shown = replace(samples, times_ns=ours.tolist())
    found = analyse(slug, evaluation, shown, one_clock=True, options=options)
    middle = len(ours) // 2
    ahead = int(ours[middle] - theirs[middle])
    off = int(clock.off_ns(ours).max())
    told = replace(found, source="clocks", offset_ns=ahead, bounds_ns=(ahead - off, ahead + off))
    if found.took_ns is not None and 2 * off > found.took_ns[0]:
        told = replace(told, own_effect=None)  # which packets met a sample cannot be seen
    if found.reason is None and 2 * off > found.windows.period_ns:
        reason = (
            f"the clock of the samples is known to {format_time(2 * off)} only, which is longer "
            f"than the {format_time(found.windows.period_ns)} between two of them: sample less "
            "often, or bring the hosts nearer to each other"
        )
        rose = tuple(described(found.windows, found.late))
        return replace(told, reason=reason, counters=rose)
    return told


def _late(evaluation: Evaluation, worst: int | None) -> Late:
    packets = evaluation.worst_packets
    matched = evaluation.counts.matched
    most = worst if worst is not None else max(1, min(WORST, matched // WORST_SHARE))
    latency = packets.latency_ns[:most]
    median = evaluation.percentile(0.5).value
    side = evaluation.inputs.ingress
    return Late(
        packets.ingress_ns[:most],
        latency,
        np.maximum(latency - median, 0),
        side.first_ns,
        side.last_ns,
    )


def _reason(
    windows: Windows, late: Late, offset: int | None, suggestion: Suggestion | None
) -> str | None:
    """Why nothing can be told of these windows."""
    if not late.excess_ns.any():
        return "no packet is later than the median"
    if offset is None:
        return _unknown_offset(suggestion)
    if not windows.number:
        return (
            "no window between two samples lies within the captures: check the offset, which is "
            "what to add to a sample's time for the captures'"
        )
    if windows.number < LEAST_WINDOWS:
        return (
            f"{windows.number} windows of {format_time(windows.period_ns)} lie within the "
            f"captures: with fewer than {LEAST_WINDOWS}, chance alone puts late packets into the "
            f"same window as any rise more often than once in {LEAST_WINDOWS}; sample more often, "
            "or for longer"
        )
    if not late.lateness(windows.bounds_ns).any():
        return "no late packet lies within the windows"
    return None


def _unknown_offset(found: Suggestion | None) -> str:
    if found is None:
        return "nothing rises in the samples, so that no offset of the clocks can be suggested"
    low, high = (format_time(ns) for ns in found.searched_ns)
    said = f"the offset of the clocks is unknown, and of all from {low} to {high} none "
    if found.windows < LEAST_WINDOWS:
        return (
            f"the offset of the clocks is unknown, and the captures are {found.windows} periods "
            f"of the samples long, of which {LEAST_WINDOWS} may tell: give it with "
            "--offset if you know it"
        )
    if found.periodic:
        return (
            "the offset of the clocks is unknown, and late packets return with a period, so that "
            "several offsets fit alike: give it with --offset if you know it"
        )
    if found.p_value > LEVEL:
        return (
            f"{said}fits better than chance (best {format_time(found.best_ns)}, "
            f"p = {found.p_value:.2g}): give it with --offset if you know it"
        )
    return (
        f"{said}can be told from the others: those from {format_time(found.low_ns)} to "
        f"{format_time(found.high_ns)} fit as well; give it with --offset if you know it"
    )
