"""What was found, in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tailtap.analysis.causes.joined import BEHIND, DIRECT, OWN, QUEUED, STATES, Joined
from tailtap.analysis.causes.labels import Labels
from tailtap.analysis.causes.periods import Period
from tailtap.analysis.causes.remedies import Remedy
from tailtap.analysis.causes.segments import UNKNOWN
from tailtap.analysis.causes.taxonomy import SERVING, Named
from tailtap.analysis.evaluation.percentiles import label
from tailtap.base.units import format_count, format_time
from tailtap.records.causes import CausesRecord, Without

MOST_PARTS = 3
NO_REMEDY = "no knob of `tailtap host` is known that answers a cause found here and can be set here"


def packet_words(joined: Joined, labels: Labels, packet: int, behind: int) -> str:
    """A late packet: how late, by what, and how many were behind its stall."""
    excess = int(joined.late.excess_ns[packet])
    head = f"{format_time(excess)} late{where(joined, packet)}: "
    state = int(joined.state[packet])
    stall = int(joined.stall[packet])
    blamed = labels.blame(packet)
    if state == BEHIND:
        return f"{head}behind stall {stall + 1}, {blamed}"
    if state == QUEUED:
        return f"{head}a queue that no stall made"
    if state == OWN:
        return f"{head}{labels.name(packet)}: the server had the core"
    if state != DIRECT:
        return f"{head}{STATES[state]}"
    parts = [(row, ns) for row, ns in joined.parts(packet) if row != SERVING][:MOST_PARTS]
    told = ", ".join(f"{joined.rows.names[row]} for {format_time(ns)}" for row, ns in parts)
    more = f"; {behind} behind this stall" if behind and stall != UNKNOWN else ""
    doubt = "" if blamed.cause != "unexplained" else " (present, not shown to be the cause)"
    return f"{head}{told}{doubt}{more}"


def where(joined: Joined, packet: int) -> str:
    """Where a packet was late, if the device has several segments."""
    if len(joined.segments) == 1:
        return ""
    return f" in {joined.segments[int(joined.segment[packet])]}"


def period_words(name: Named | None, period: Period) -> str:
    """A period: of what, how long, and which known one it is."""
    what = "all stalls" if name is None else str(name)
    return f"{what}: every {format_time(period.period_ns)}" + (
        f", {period.words}" if period.words else ""
    )


def remedy_words(lines: Sequence[str], remedy: Remedy, without: Without | None) -> str:
    """Candidates with what to type, and what would be left of the tail."""
    words = f"candidates, not tried here: {'; '.join(lines)}"
    if without is not None:
        words += f"; {estimate_words(sorted(remedy.causes), without)}"
    return words


def estimate_words(causes: Iterable[Named], without: Without) -> str:
    """What the tail would be without the time of some causes."""
    names = ", ".join(map(str, causes))
    now, worst = format_time(without.measured_ns), format_time(without.measured_worst_ns)
    then, left = (_at_most(ns, without) for ns in (without.percentile_ns, without.worst_ns))
    return (
        f"estimate without the time of {names}, if nothing else took its place: "
        f"{label(without.p)} {now} to {then}, worst {worst} to {left}"
    )


def unexplained_words(record: CausesRecord) -> str:
    """How many late packets nothing explains, and how many of these nobody could explain."""
    unexplained, late = record.unexplained, record.late
    packets = format_count(unexplained.packets, "packet")
    untraced = ""
    if unexplained.untraced:
        untraced = f" ({unexplained.untraced:,} of them passed while nothing was traced)"
    return (
        f"unexplained: {packets}, {unexplained.packets / late.packets:.1%}"
        f"{untraced}, {format_time(unexplained.delay_ns)} of {format_time(late.delay_ns)}"
    )


def _at_most(value_ns: int, without: Without) -> str:
    return ("at most " if value_ns <= without.least_ns else "") + format_time(value_ns)
