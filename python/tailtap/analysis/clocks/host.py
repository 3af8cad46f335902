"""The clock of the DuT's host against that of the stamps, where these are of two machines.

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
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from tailtap.analysis.clocks.alignment import Alignment, Crossings, Times, align, matched, on_lines
from tailtap.base.errors import InputError
from tailtap.records.causes import GuestClockTold, HostClockTold
from tailtap.records.evaluation import PacketsBothWays
from tailtap.records.run import Event, Found
from tailtap.records.stamps import read_stamps


@dataclass(frozen=True)
class HostClock:
    """What the clock of the DuT's host shows, said by that of the stamps."""

    at_ns: tuple[int, int]
    """Two moments of the stamps' clock."""
    ahead_ns: tuple[tuple[int, int], tuple[int, int]]
    """By how much the DuT's is ahead then, the least and the most."""
    drifts: tuple[float, float]
    """How much faster it runs, the least and the most."""
    bend_ns: int
    """How far from a line the clocks may have been in between."""

    def moments(self) -> tuple[Times, Times]:
        """Moments of the DuT's clock and of the stamps', in ns: the clock is the line between."""
        ours = np.array(self.at_ns, np.int64)
        least, most = np.array(self.ahead_ns, np.int64).T
        return ours + (least + most) // 2, ours

    def stamps_ns(self, times: Times) -> Times:
        """The stamps' time for times of the DuT, by this line, in ns."""
        return on_lines(times, *self.moments())

    def off_ns(self, times: Times) -> Times:
        """How far this line may be from the truth at times of the stamps, in ns."""
        first, last = self.at_ns
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


def host_clock(found: Found | None, what: str) -> HostClock | None:
    """The clock of the DuT's host, by what was found in a run; None where it is that of the stamps.

    Hosts that share a kernel have one clock. Raises `InputError` where the machines are two and
    nobody knows how their clocks stand; `what` is what cannot be joined with the stamps then.
    """
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
        pieces = self.alignment.pieces
        edges = [np.array([piece.from_ns, piece.until_ns]) for piece in pieces]
        bounds = [piece.ahead_ns(edge) for piece, edge in zip(pieces, edges, strict=True)]
        host = [int(edges[0][0])]
        least, most = [int(bounds[0][0][0])], [int(bounds[0][1][0])]
        for here, (at, after) in enumerate(pairwise(pieces)):
            before, behind = bounds[here], after.ahead_ns(np.array([at.until_ns]))
            host.append(at.until_ns)
            least.append(max(int(before[0][1]), int(behind[0][0])))
            most.append(min(int(before[1][1]), int(behind[1][0])))
        host.append(int(edges[-1][1]))
        least.append(int(bounds[-1][0][1]))
        most.append(int(bounds[-1][1][1]))
        ours = np.array(host, np.int64)
        ahead = (np.array(least, np.int64) + np.array(most, np.int64)) // 2
        return ours + ahead, ours

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
