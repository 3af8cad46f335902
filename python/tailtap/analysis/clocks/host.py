"""The clock of the DuT's host against that of the stamps, where these are of two machines, or where
the card that stamps has a clock of its own.

On a testbed packets are stamped on one host, and what the DuT's kernel did is recorded on another.
Both were asked what their clocks show before and after the run (`measure.hosts_clocks`), so that
the difference is known as an interval at two moments. Between them the truth is a line, but for
what the rates of the clocks changed meanwhile.

The clock of a guest against its host's, by packets that both stamped.

A packet is stamped before the guest on the host, then as it comes in in the guest, then as it goes
out there, then behind the guest on the host. So each one bounds the clocks' difference from both
sides (`alignment`). The width of the interval is what the quickest packets take from the one to the
other, there and back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from tailtap.analysis.clocks.alignment import (
    FASTEST,
    ROUNDING_NS,
    Alignment,
    Crossings,
    Times,
    align,
    matched,
    on_lines,
)
from tailtap.base.errors import InputError
from tailtap.records.causes import GuestClockTold, HostClockTold
from tailtap.records.datapath import ByCard
from tailtap.records.evaluation import PacketsBothWays
from tailtap.records.run import Event, Found
from tailtap.records.stamps import read_stamps


@dataclass(frozen=True)
class HostClock:
    """What another clock shows, said by ours: that of the DuT's host by that of the stamps, or that
    of a card by CLOCK_MONOTONIC.
    """

    at_ns: tuple[int, ...]
    """Two moments or more of our clock, ascending."""
    ahead_ns: tuple[tuple[int, int], ...]
    """By how much the other is ahead then, the least and the most."""
    drifts: tuple[float, float]
    """How much faster it runs, the least and the most."""
    bend_ns: int
    """How far from a line the clocks may have been in between."""

    def moments(self) -> tuple[Times, Times]:
        """Moments of the other clock and of ours, in ns: the clock is the lines between."""
        ours = np.array(self.at_ns, np.int64)
        least, most = np.array(self.ahead_ns, np.int64).T
        return ours + (least + most) // 2, ours

    def stamps_ns(self, times: Times) -> Times:
        """The stamps' time for times of the DuT, by this line, in ns."""
        return on_lines(times, *self.moments())

    def off_ns(self, times: Times) -> Times:
        """How far this line may be from the truth at times of the stamps, in ns."""
        first, last = self.at_ns[0], self.at_ns[-1]
        half = [-(-(most - least) // 2) for least, most in self.ahead_ns]
        between = on_lines(np.clip(times, first, last), np.array(self.at_ns), np.array(half))
        beyond = np.maximum(first - times, 0) + np.maximum(times - last, 0)
        wandered = np.ceil(beyond * (self.drifts[1] - self.drifts[0])).astype(np.int64)
        off: Times = between + wandered + self.bend_ns
        return off

    @property
    def width_ns(self) -> int:
        """How wide the interval of the clocks' difference is at most, during the run."""
        return 2 * int(self.off_ns(np.array(self.at_ns, np.int64)).max())

    def record(self, coarse: int) -> HostClockTold:
        """What `causes.json` says of it; it is too `coarse` for so many late packets."""
        return HostClockTold(
            at_ns=list(self.at_ns),
            ahead_ns=[list(ends) for ends in self.ahead_ns],
            drifts=list(self.drifts),
            bend_ns=self.bend_ns,
            width_ns=self.width_ns,
            coarse=coarse,
        )


MANY_GAPS = 4
"""So many different times between readings show the steps of a clock. By chance they share a factor
once in twelve times: then the clock counts as coarser than it is, by a few nanoseconds."""
CARD_PIECE_NS = 1_000_000_000
"""Whoever disciplines a card's clock gives it another rate once a second, or less often."""


def step_of(shown: Times) -> int:
    """The steps in ns in which a clock goes, by what it showed; 1 where that tells none."""
    gaps = np.unique(np.diff(shown))
    # A regular pace of readings looks like steps, too.
    return max(1, int(np.gcd.reduce(gaps))) if gaps.size >= MANY_GAPS or 0 in gaps else 1


def clock_of_card(tap: ByCard) -> HostClock:
    """The clock of a tap's card, said by CLOCK_MONOTONIC of its machine.

    Raises `InputError` where it was not read or only once, stepped, or changed its rate.
    """
    times = tap.readings.times_ns if tap.readings else []
    if len(times) < 2:
        raise InputError("this clock was not compared with the kernel's while its card stamped").at(
            tap.clock_device or "a card's clock"
        )
    before, shown, after = np.array(times, np.int64).T
    # A clock that goes in steps of 8 ns shows up to 7 ns less than the time.
    there, back = Crossings(before, shown, 1 - step_of(shown)), Crossings(after, shown)
    try:
        found = align(there, back, CARD_PIECE_NS)
    except InputError as error:
        raise InputError(
            f"{error}; let the program that sets it settle (ptp4l, phc2sys), or stop it"
        ).at(tap.clock_device or "a card's clock") from error
    at, least, most = found.bounds()
    rates = np.concatenate([piece.corners[:, 1] for piece in found.pieces])
    # Rounding may leave nothing between the bounds of two pieces.
    ahead = np.sort(np.column_stack([least, most]), axis=1).tolist()
    return HostClock(
        tuple(at.tolist()),
        tuple((low, high) for low, high in ahead),
        (float(rates.min()), float(rates.max())),
        0,
    )


def host_clock(found: Found | None, what: str, ingress: ByCard | None = None) -> HostClock | None:
    """The clock of the DuT's host, by what was found in a run; None where it is that of the stamps.

    Where a card stamped at the tap before the DuT, it is told by the card's clock, through that of
    the timestamper's kernel. Hosts that share a kernel have one clock. Raises `InputError` where
    nobody knows how the clocks stand; `what` is what cannot be joined with the stamps then.
    """
    host = _by_kernels(found, what)
    if ingress is None or ingress.clock_device is None:
        return host
    card = clock_of_card(ingress)
    at = np.array(card.at_ns, np.int64)
    shown, off = on_lines(at, *card.moments()[::-1]), card.off_ns(at)
    theirs, rates = at, (0.0, 0.0)
    if host is not None:
        within = [one for one in host.at_ns if card.at_ns[0] < one < card.at_ns[-1]]
        at = np.union1d(at, np.array(within, np.int64))
        shown, off = on_lines(at, *card.moments()[::-1]), card.off_ns(at) + host.off_ns(at)
        theirs, rates = on_lines(at, *host.moments()[::-1]), host.drifts
    off = np.ceil(off * (1 + FASTEST)).astype(np.int64) + 2 * ROUNDING_NS
    ahead = np.column_stack([theirs - shown - off, theirs - shown + off]).tolist()
    return HostClock(
        tuple(shown.tolist()),
        tuple((least, most) for least, most in ahead),
        (rates[0] - card.drifts[1], rates[1] - card.drifts[0]),
        0,
    )


def _by_kernels(found: Found | None, what: str) -> HostClock | None:
    clocks = found.clocks if found else None
    if found is None or clocks is None or clocks.against not in found.stations:
        return None
    told = clocks.dut
    if told is None or told.at_ns is None or told.ahead_ns is None or told.drifts is None:
        raise InputError(
            f"{what} cannot be joined with stamps that another machine took: the clock of one of "
            "them stepped, or changed its rate, during the run (clock-unsteady): measure again, "
            "with clocks that are slewed"
        )
    clock = HostClock(told.at_ns, told.ahead_ns, told.drifts, told.bend_ns)
    if clock.at_ns[0] >= clock.at_ns[1]:
        raise InputError("clocks of run.json: damaged: their moments do not ascend; measure again")
    return clock


def events_by_stamps(events: Sequence[Event], clock: HostClock) -> list[Event]:
    """Events that the DuT's host told of, by the clock of the stamps, and how far they may be off.

    One that has not ended has no end here either.
    """
    times = np.array(
        [(one.begin_ns, one.begin_ns if one.end_ns is None else one.end_ns) for one in events],
        np.int64,
    ).reshape(-1, 2)
    stamps = clock.stamps_ns(times)
    return [
        replace(
            event, begin_ns=begin, end_ns=None if event.end_ns is None else end, within_ns=within
        )
        for event, (begin, end), within in zip(
            events, stamps.tolist(), clock.off_ns(stamps).max(axis=1).tolist(), strict=True
        )
    ]


INGRESS, EGRESS = "guest-ingress.stamps", "guest-egress.stamps"
OF_TWO_CLOCKS = "the stamps are of two cards that have a clock each"
FILES = (INGRESS, EGRESS)
"""The guest's stamps in the run folder; the host's are `ingress.stamps` and `egress.stamps`."""


@dataclass(frozen=True)
class GuestClock:
    """What the guest's clock shows, said by the host's."""

    alignment: Alignment
    there: int
    """Packets that bound it from above: they were stamped on the host, then in the guest."""
    back: int
    """Packets that bound it from below."""

    def moments(self) -> tuple[Times, Times]:
        """Moments of the guest's clock and of the host's, in ns: the clock is the straight lines
        between them. Where pieces meet, both allow the moment.
        """
        ours, least, most = self.alignment.bounds()
        return ours + (least + most) // 2, ours

    def host_ns(self, times: Times) -> Times:
        """The host's time for times of the guest, by these lines, in ns."""
        return on_lines(times, *self.moments())

    def off_ns(self, times: Times) -> Times:
        """How far these lines may be from the truth at times of the host, in ns."""
        least, most = self.alignment.ahead_ns(times)
        off: Times = np.maximum(
            times - self.host_ns(times + least), self.host_ns(times + most) - times
        )
        return off

    @property
    def width_ns(self) -> int:
        """How wide the interval of the clocks' difference is, mostly."""
        pieces = self.alignment.pieces
        least, most = self.alignment.ahead_ns(np.array([piece.middle_ns for piece in pieces]))
        return int(np.median(most - least))

    def record(self) -> GuestClockTold:
        """What is stored with a run: offset, drift and width of the interval."""
        first, last = self.alignment.pieces[0], self.alignment.pieces[-1]
        ends = np.array([first.from_ns, last.until_ns])
        least, most = self.alignment.ahead_ns(ends)
        corners = np.concatenate([piece.corners[:, 1] for piece in self.alignment.pieces])
        middle = (least + most) / 2
        return GuestClockTold(
            at_ns=int(ends[0]),
            offset_ns=[int(least[0]), int(most[0])],
            drift=float((middle[1] - middle[0]) / max(1, ends[1] - ends[0])),
            drifts=[float(corners.min()), float(corners.max())],
            width_ns=self.width_ns,
            widest_ns=self.alignment.widest_ns(ends),
            packets=PacketsBothWays(there=self.there, back=self.back),
        )


def guest_clock(folder: Path) -> GuestClock:
    """The guest's clock in a run folder.

    Raises `InputError` when a file is missing or no stamp file, when no packet passed both clocks
    in one of the directions, and when a clock stepped.
    """
    there = Crossings(*matched(_stamps(folder / "ingress.stamps"), _stamps(folder / INGRESS)))
    left, came = matched(_stamps(folder / EGRESS), _stamps(folder / "egress.stamps"))
    back = Crossings(came, left)
    if not there.ours_ns.size or not back.ours_ns.size:
        where = "came in" if not there.ours_ns.size else "went out"
        raise InputError(f"no packet was stamped in the guest where it {where}")
    return GuestClock(align(there, back), there.ours_ns.size, back.ours_ns.size)


def _stamps(path: Path) -> tuple[Times, Any]:
    records = read_stamps(path)
    return records["time_ns"].astype(np.int64), records["id"].astype(np.uint64)
