"""Two clocks that stamped the same packets: how much one is ahead, as an interval with the truth.

Let theta(t) be what their clock shows more than ours when ours shows t. A packet that passes us, at
s on our clock, and then them, at r on theirs, takes no less than nothing: theta(s) <= r - s. One
that passes them at s and then us at r says theta(r) >= s - r. Within a piece of a few seconds theta
is taken for a line: clocks of quartz change their rates more slowly than that. The lines that keep
all these bounds lie between two convex hulls, that of the bounds from above and that of those from
below. Their offsets and drifts make a convex polygon, whose corners are all that is needed, and
the truth is one of these lines. Where the quickest packets both ways take d1 and d2 at about the
same time, the interval is d1 + d2 wide there, which is the bound of any method that knows nothing
of the packets' ways. No line at all means that a clock stepped, or changed its rate.

After Moon, Skelly and Towsley, "Estimation and removal of clock skew from network delay
measurements" (INFOCOM 1999), a linear programme, and Zhang, Liu and Xia, "Clock synchronization
algorithms for network measurements" (INFOCOM 2002), convex hulls.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tailtap.base.errors import InputError

Times: TypeAlias = npt.NDArray[np.int64]
Corners: TypeAlias = npt.NDArray[np.float64]

PIECE_NS = 2_000_000_000
"""Rates of clocks are constant for so long."""
FASTEST = 0.01
"""No clock runs this much faster than another: a quartz differs by 1e-4, and a guess at a virtual
machine's frequency by 1e-3."""
ROUNDING_NS = 1
"""What the arithmetic of floating point may be off by, at most."""
_MOST_CUTS = 10_000
_STRETCHES = 256


class Stepped(InputError):
    """No line keeps the bounds of all packets: a clock stepped, or changed its rate."""


@dataclass(frozen=True)
class Crossings:
    """Packets that passed both clocks, in one direction; times in ns, by each one's own clock."""

    ours_ns: Times
    theirs_ns: Times
    least_ns: int = 0
    """What a packet takes between the two stamps at least."""


@dataclass(frozen=True)
class Piece:
    """A stretch of time in which the clocks' difference is one of several lines."""

    from_ns: int
    """By our clock; the first piece serves for all before it, the last for all after it."""
    until_ns: int
    middle_ns: int
    offset_ns: int
    """Roughly theta; what is in `corners` comes on top."""
    corners: Corners
    """Offsets at `middle_ns` in ns and drifts, one row for each corner of their polygon."""

    def ahead_ns(self, times: Times) -> tuple[Times, Times]:
        """The least and the most by which their clock is ahead at these times of ours."""
        since = (np.asarray(times, np.int64) - self.middle_ns).astype(np.float64)
        values = self.corners[:, :1] + self.corners[:, 1:] * since
        return self._whole(values, self.offset_ns)

    def ours_ns(self, times: Times) -> tuple[Times, Times]:
        """The earliest and the latest time of our clock for times of theirs."""
        base = self.middle_ns + self.offset_ns
        since = (np.asarray(times, np.int64) - base).astype(np.float64)
        values = (since - self.corners[:, :1]) / (1 + self.corners[:, 1:])
        return self._whole(values, self.middle_ns)

    @staticmethod
    def _whole(values: Corners, base: int) -> tuple[Times, Times]:
        least = np.floor(values.min(axis=0)).astype(np.int64) - ROUNDING_NS
        most = np.ceil(values.max(axis=0)).astype(np.int64) + ROUNDING_NS
        return base + least, base + most


@dataclass(frozen=True)
class Lines:
    """Their clock said by ours: straight lines from knot to knot, and on beyond the last ones."""

    knots: tuple[tuple[int, int], ...]
    """Times of theirs, ascending, each with that of ours; in ns."""
    within_ns: int
    """The truth is this near to the lines, rounded to whole ns."""


@dataclass(frozen=True)
class Alignment:
    """What their clock shows, said by ours, with what it may be off by."""

    pieces: tuple[Piece, ...]

    def ahead_ns(self, times: Times) -> tuple[Times, Times]:
        """The least and the most by which their clock is ahead at these times of ours, in ns."""
        times = np.asarray(times, np.int64)
        places = np.searchsorted([piece.from_ns for piece in self.pieces[1:]], times, "right")
        return self._by_piece(times, places, "ahead_ns")

    def ours_ns(self, times: Times) -> tuple[Times, Times]:
        """The earliest and the latest time of our clock, in ns, for times of theirs."""
        times = np.asarray(times, np.int64)
        begins = [
            int(piece.ahead_ns(np.array([piece.from_ns]))[0][0]) + piece.from_ns
            for piece in self.pieces[1:]
        ]
        return self._by_piece(times, np.searchsorted(begins, times, "right"), "ours_ns")

    def lines(self, first: int, last: int) -> Lines:
        """One clock for both: times of theirs from `first` to `last`, in ns, said by ours.

        The lines lead from the middle of the interval at one end of a piece to that at the other.
        The truth is a line there as well, so that it is nowhere farther off than at these ends.
        Where two pieces meet, both allow the truth. Raises `InputError` where what the packets
        leave open is longer than a piece.
        """
        joints = [
            int(piece.ahead_ns(np.array([piece.from_ns]))[0][0]) + piece.from_ns
            for piece in self.pieces[1:]
        ]
        ends = [min([first, *joints]), *joints, max([last, *joints])]
        bounds: list[list[tuple[int, int]]] = [[] for _ in ends]
        for place, piece in enumerate(self.pieces):
            earliest, latest = piece.ours_ns(np.array(ends[place : place + 2]))
            for shift, allowed in enumerate(zip(earliest.tolist(), latest.tolist(), strict=True)):
                bounds[place + shift].append(allowed)
        ours, off = [], 0
        for both in bounds:
            # Rounding may leave nothing between the bounds of two pieces.
            low, high = sorted([max(one[0] for one in both), min(one[1] for one in both)])
            ours.append((low + high) // 2)
            off = max(off, high - ours[-1])
        knots = [(ends[0], ours[0])]
        knots += [(r, s) for r, s in zip(ends, ours, strict=True) if r > knots[0][0]]
        if any(after[1] <= before[1] for before, after in pairwise(knots)):
            raise InputError(f"clocks cannot be aligned: packets leave {2 * off} ns open")
        return Lines(tuple(knots), off + ROUNDING_NS)

    def bounds(self) -> tuple[Times, Times, Times]:
        """Times of ours at which pieces begin and end, and the least and the most by which theirs
        is ahead then. The truth is a line from one to the next; where pieces meet, both allow it.
        """
        edges = [np.array([piece.from_ns, piece.until_ns]) for piece in self.pieces]
        ends = [piece.ahead_ns(edge) for piece, edge in zip(self.pieces, edges, strict=True)]
        at = [int(edges[0][0])]
        least, most = [int(ends[0][0][0])], [int(ends[0][1][0])]
        for here, (piece, after) in enumerate(pairwise(self.pieces)):
            before, behind = ends[here], after.ahead_ns(np.array([piece.until_ns]))
            at.append(piece.until_ns)
            least.append(max(int(before[0][1]), int(behind[0][0])))
            most.append(min(int(before[1][1]), int(behind[1][0])))
        at.append(int(edges[-1][1]))
        least.append(int(ends[-1][0][1]))
        most.append(int(ends[-1][1][1]))
        return np.array(at, np.int64), np.array(least, np.int64), np.array(most, np.int64)

    def widest_ns(self, times: Times) -> int:
        """How wide the interval is at most, at these times of our clock."""
        least, most = self.ahead_ns(times)
        return int((most - least).max(initial=0))

    def _by_piece(self, times: Times, places: Any, name: str) -> tuple[Times, Times]:
        least, most = np.empty_like(times), np.empty_like(times)
        for place, piece in enumerate(self.pieces):
            chosen = places == place
            least[chosen], most[chosen] = getattr(piece, name)(times[chosen])
        return least, most


def align(there: Crossings, back: Crossings, piece_ns: int = PIECE_NS) -> Alignment:
    """How much their clock is ahead of ours, from packets `there`, which passed us first, and
    `back`, which passed them first, in any order.

    Raises `InputError` when no packet passed in one of the directions, and `Stepped` when a clock
    stepped by more than the interval is wide.
    """
    if not there.ours_ns.size or not back.ours_ns.size:
        raise InputError("clocks cannot be aligned: packets passed both clocks one way only")
    # One that left at s of our clock is not with them before s + least.
    above_at, above = _bounds(there.ours_ns + there.least_ns, there.theirs_ns)
    below_at, below = _bounds(back.ours_ns - back.least_ns, back.theirs_ns)
    first = int(min(above_at[0], below_at[0]))
    last = int(max(above_at[-1], below_at[-1]))
    count = max(1, (last - first) // piece_ns)
    edges = [first + (last + 1 - first) * place // count for place in range(count + 1)]
    pieces: list[Piece] = []
    for begin, end in pairwise(edges):
        high = slice(*np.searchsorted(above_at, (begin, end)))
        low = slice(*np.searchsorted(below_at, (begin, end)))
        if high.start == high.stop or low.start == low.stop:
            continue  # its neighbours serve for it
        bounds = (above_at[high], above[high], below_at[low], below[low])
        pieces.append(_piece(begin, end, *bounds))
    if not pieces:
        raise InputError("clocks cannot be aligned: packets there and back are of different times")
    for before, after in pairwise(pieces):
        _require_steady(before, after)
    return Alignment(tuple(pieces))


def _bounds(at: Times, theirs: Times) -> tuple[Times, Times]:
    """Times of ours, ascending, and by how much theirs is ahead at most, or at least."""
    order = np.argsort(at)
    return at[order], (theirs - at)[order]


def _piece(
    begin: int, end: int, above_at: Times, above: Times, below_at: Times, below: Times
) -> Piece:
    """The lines that keep the bounds of a piece. Raises `Stepped` when there is none."""
    middle, offset = (begin + end) // 2, int(above.min())
    at = np.concatenate([above_at, below_at]) - middle
    bound = np.concatenate([above, below]) - offset
    sign = np.repeat([1.0, -1.0], [above.size, below.size])
    # sign * (a + b * at) <= sign * bound, for offsets a and drifts b.
    rows = np.column_stack([sign, sign * at])
    limits = sign * bound
    reach = float(np.abs(bound).max()) + FASTEST * (end - begin) + 1
    corners = np.array([[-reach, -FASTEST], [reach, -FASTEST], [reach, FASTEST], [-reach, FASTEST]])
    # The quickest packets leave nearly nothing to be cut off by the others, which are many.
    quick = np.concatenate([_least(above), above.size + _least(-below)])
    for chosen in (quick, slice(None)):
        corners = _within(corners, rows[chosen], limits[chosen])
        if not corners.size:
            raise Stepped(
                "clocks cannot be aligned: one of them stepped, or changed its rate, at "
                f"{begin / 1e9:.3f} to {end / 1e9:.3f} s"
            )
    return Piece(begin, end, middle, offset, corners)


def _least(bounds: Times) -> Times:
    """The places of the tightest bound in each of `_STRETCHES` parts of a piece."""
    edges = np.unique(np.linspace(0, bounds.size, _STRETCHES + 1).astype(np.int64)).tolist()
    places = [begin + int(bounds[begin:end].argmin()) for begin, end in pairwise(edges)]
    return np.array(places, np.int64)


def _within(corners: Corners, rows: Corners, limits: npt.NDArray[np.float64]) -> Corners:
    """The part of a convex polygon that keeps these bounds; no corner where there is none."""
    for _ in range(_MOST_CUTS):
        past = rows @ corners[0]
        for corner in corners[1:]:
            np.maximum(past, rows @ corner, out=past)
        past -= limits
        # What the whole polygon keeps, every part of it keeps.
        open_still = np.flatnonzero(past > ROUNDING_NS / 2)
        if not open_still.size:
            return corners
        worst = int(past.argmax())
        corners = _cut(corners, corners @ rows[worst] - limits[worst])
        if not corners.size:
            break
        rows, limits = rows[open_still], limits[open_still]
    return np.empty((0, 2))


def _cut(corners: Corners, beyond: npt.NDArray[np.float64]) -> Corners:
    """The part of a convex polygon on which `beyond`, given at the corners, is not positive."""
    ends = [*zip(corners.tolist(), beyond.tolist(), strict=True)]
    left = []
    for (here, past), (after, ahead) in pairwise([ends[-1], *ends]):
        if (past > 0) != (ahead > 0):
            share = past / (past - ahead)
            both = zip(here, after, strict=True)
            left.append([begun + (ended - begun) * share for begun, ended in both])
        if ahead <= 0:
            left.append(after)
    return np.array(left)


def _require_steady(before: Piece, after: Piece) -> None:
    at = np.array([after.from_ns])
    (least,), (most,) = before.ahead_ns(at)
    (lowest,), (highest,) = after.ahead_ns(at)
    if least > highest or lowest > most:
        jump = max(lowest - most, least - highest)
        raise Stepped(
            f"clocks cannot be aligned: one of them stepped by at least {jump} ns at "
            f"{after.from_ns / 1e9:.3f} s"
        )


def on_lines(times: Times, at: Times, values: Times) -> Times:
    """The values at some times, on straight lines between those at `at`; in whole ns, as
    floating point has no room for the times of a clock.
    """
    after = np.clip(np.searchsorted(at, times, "right"), 1, len(at) - 1)
    rate = (values[after] - values[after - 1]) / (at[after] - at[after - 1])
    found: Times = values[after - 1] + np.rint((times - at[after - 1]) * rate).astype(np.int64)
    return found


def matched(
    earlier: tuple[Times, npt.NDArray[np.uint64]], later: tuple[Times, npt.NDArray[np.uint64]]
) -> tuple[Times, Times]:
    """The stamps of packets that both captures have once: times and identities of each in, times of
    the same packets out."""
    sides = [_once(*side) for side in (earlier, later)]
    _, first, second = np.intersect1d(
        sides[0][1], sides[1][1], assume_unique=True, return_indices=True
    )
    return sides[0][0][first], sides[1][0][second]


def _once(times: Times, keys: npt.NDArray[np.uint64]) -> tuple[Times, npt.NDArray[np.uint64]]:
    _, place, count = np.unique(keys, return_index=True, return_counts=True)
    chosen = place[count == 1]
    return times[chosen], keys[chosen]
