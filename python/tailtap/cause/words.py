"""What was found, in sentences."""

from __future__ import annotations

from tailtap.cause.joined import BEHIND, DIRECT, OWN, QUEUED, STATES, Joined
from tailtap.cause.labels import Labels
from tailtap.cause.periods import Period
from tailtap.cause.remedies import Remedy
from tailtap.cause.segments import UNKNOWN
from tailtap.cause.taxonomy import SERVING, Named
from tailtap.units import format_time

MOST_PARTS = 3


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


def remedy_words(remedy: Remedy | None) -> str:
    """Which knobs would remove how much."""
    if remedy is None:
        return "no knob of `tailtap host` is known to remove any of these causes"
    share = f"{100 * remedy.share:.0f} %"
    return f"to remove {share} of the late packets: {', '.join(remedy.knobs)}"
