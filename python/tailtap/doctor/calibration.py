"""What calibrating a testbed says: each check a function of what was measured.

`doctor.calibrating` measures it. All rates are packets a second, all times ns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tailtap.base.errors import Check, State
from tailtap.base.units import format_count, format_rate, format_share, format_time
from tailtap.measure.testbed.model import Socket
from tailtap.records.datapath import Generator
from tailtap.records.printed import CableRow

CABLES, TAPS, LENGTH, GENERATORS = "cables", "taps", "known length", "generators"
LATE_NS = 100_000
"""Packets later than this make a run invalid, by default (traffic.slip_limit)."""
LATE_P = 0.99
REACHED = 0.99
"""The share of a rate with which it counts as reached."""
PACE_NS = (4.3, 5.0)
"""What a metre takes, in ns: 0.67 c to 0.78 c, with glass (0.68 c), copper, and the papers' 0.72 c
("How Low Can You Go?", after MoonGen, IMC 2015) between."""
EXACT_NS = 100
"""Stamps that are wrong by less serve for all that is later than a microsecond."""


@dataclass(frozen=True)
class Step:
    """Packets of one size that one card sent at a rate, and what a tap at another card counted."""

    size: int
    rate: int
    sent: Generator
    seen: int = 0
    """By the tap."""
    unstored: int = 0
    """That its ring had no room for."""
    dropped: int = 0
    """By the card, or its kernel."""

    @property
    def missing(self) -> int:
        """Packets that were sent, and that no stamp is of."""
        return (self.sent.sent or 0) - self.seen + self.unstored

    @property
    def reached(self) -> float:
        """The rate at which packets left."""
        return self.sent.achieved_rate or 0

    @property
    def late_ns(self) -> int | None:
        """How late 99 of 100 packets left at most."""
        rows = self.sent.slip_ns.percentiles if self.sent.slip_ns else ()
        return next((row.value for row in rows if row.p == LATE_P), None)

    @property
    def kept(self) -> bool:
        """Whether the generator kept the rate, and its times."""
        late = self.late_ns
        return self.reached >= REACHED * self.rate and late is not None and late <= LATE_NS


def of_cable(row: CableRow) -> Check:
    """What packets say of a cable."""
    states: dict[str, State] = {"ok": "ok", "unknown": "untested"}
    remedy = "plug it as the testbed file says, or correct the file"
    behind = "" if row.splitter is None else f", and to {row.splitter} behind the splitter"
    found = row.said or f"packets come from each end to the other{behind}"
    state = states.get(row.answer, "missing")
    return Check(CABLES, " - ".join(row.ends), state, found, "" if state == "ok" else remedy)


def of_tap(card: Socket, steps: Sequence[Step]) -> Check:
    """What a tap lost at rising rates."""
    name = f"{card}: loss"
    good, bad = _parted(steps, [not one.missing for one in steps])
    most = max((one.reached for one in good), default=0.0)
    if not bad:
        packets = sum(one.seen for one in steps)
        found = f"none of {packets:,} packets lost, up to {format_rate(most)}"
        return Check(TAPS, name, "ok", found)
    first = bad[0]
    sent = first.sent.sent or 0
    if first.missing < 0:
        found = f"{format_count(-first.missing, 'packet')} more than the {sent:,} sent"
        return Check(TAPS, name, "poor", found, "find out who else sends on this cable")
    parts = {
        "its ring": first.unstored,
        "its card or kernel": min(first.dropped, first.missing - first.unstored),
    }
    parts["before its card"] = first.missing - sum(parts.values())
    where = " and ".join(f"{count:,} by {part}" for part, count in parts.items() if count)
    found = (
        f"lost {first.missing:,} of {sent:,} packets ({format_share(first.missing / sent)}) at "
        f"{format_rate(first.reached)}: {where.replace('by before', 'before')}"
    )
    below = f"measure at most {format_rate(most)}, or" if good else "find out at which rate:"
    remedies = {
        "its ring": "give the tap's machine a free core",
        "its card or kernel": "give the card a longer ring (`ethtool -G`) and a core of its own",
        "before its card": "look for errors of both cards (`ethtool -S`) and clean the fibre",
    }
    worst = max(parts, key=lambda part: parts[part])
    return Check(TAPS, name, "poor", found, f"{below} {remedies[worst]}")


def of_generator(card: Socket, steps: Sequence[Step]) -> Iterator[Check]:
    """How late packets left at rising rates, and the highest rate of each size."""
    for size in sorted({one.size for one in steps}):
        of_size = [one for one in steps if one.size == size]
        kept, bad = _parted(of_size, [one.kept for one in of_size])
        top = max(of_size, key=lambda one: one.rate)
        found = f"reaches {format_rate(top.rate)}"
        if top.reached < REACHED * top.rate:
            most = max(one.reached for one in of_size)
            found = f"sends at most {format_rate(most)} of {format_rate(top.rate)}"
        if kept:
            best = kept[-1]
            late = format_time(best.late_ns or 0)
            found += f"; at {format_rate(best.rate)} 99 % leave within {late} of their time"
        name = f"{card}: {size} B"
        if not bad:
            yield Check(GENERATORS, name, "ok", found)
            continue
        first = bad[0]
        late = format_time(first.late_ns or 0)
        found += f"; at {format_rate(first.rate)} 1 % leave later than {late}"
        limit = f"send at most {format_rate(kept[-1].rate)}, or " if kept else ""
        remedy = f"{limit}give it a core of its own (--cpu), or take --generator af_xdp or MoonGen"
        yield Check(GENERATORS, name, "poor", found, remedy)


def _parted(steps: Sequence[Step], good: Sequence[bool]) -> tuple[list[Step], list[Step]]:
    """The steps below the first that is not good, and those from it on."""
    first = good.index(False) if False in good else len(good)
    return list(steps[:first]), list(steps[first:])


@dataclass(frozen=True)
class Apart:
    """How much later packets were stamped at one place than at another."""

    packets: int
    median_ns: int
    spread_ns: int
    """From the first percentile to the 99th."""
    within_ns: int
    """What the clocks leave open."""
    clock: str


def of_length(name: str, metres: float | None, apart: Apart) -> Check:
    """How far stamps are from what a cable of that length takes."""
    found = (
        f"{format_time(apart.median_ns)} at the median of {apart.packets:,}, 98 % within "
        f"{format_time(apart.spread_ns)}, by {apart.clock} stamps"
    )
    if apart.within_ns:
        found += f" of clocks that are known to {format_time(apart.within_ns)}"
    if metres is None:
        remedy = "say how long the way from one to the other is: --length '2 m'"
        return Check(LENGTH, name, "untested", found, remedy)
    least, most = (metres * pace for pace in PACE_NS)
    off = max(least - apart.median_ns, apart.median_ns - most, 0)
    found += f": {format_time(off)} from the {least:.0f} to {most:.0f} ns of {metres:g} m"
    if off <= EXACT_NS + apart.within_ns:
        return Check(LENGTH, name, "ok", found)
    remedy = "latencies have this error, too: take cards that stamp (tap.clock: hardware)"
    return Check(LENGTH, name, "poor", found, remedy)
