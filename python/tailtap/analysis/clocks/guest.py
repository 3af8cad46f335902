"""The clock of a guest against its host's, by packets that both stamped.

A packet is stamped before the guest on the host, then as it comes in in the guest, then as it goes
out there, then behind the guest on the host. So each one bounds the clocks' difference from both
sides (`alignment`). The width of the interval is what the quickest packets take from the one to the
other, there and back.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from tailtap.analysis.clocks.alignment import Alignment, Crossings, Times, align, matched, on_lines
from tailtap.base.errors import InputError
from tailtap.records.causes import GuestClockTold
from tailtap.records.evaluation import PacketsBothWays
from tailtap.records.stamps import read_stamps

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
        theirs, ours = self.moments()
        shown = on_lines(times, ours, theirs)
        least, most = self.alignment.ahead_ns(times)
        off: Times = np.maximum(shown - times - least, most - (shown - times))
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
    """Times and ids of a stamp file."""
    records = read_stamps(path)
    return records["time_ns"].astype(np.int64), records["id"].astype(np.uint64)
