"""Two clocks: how the one behind the device is to the one before it, and what that leaves open.

And clocks that resolve little: what stamps in steps leave open (`Within`).

Either somebody knows by how much the clock behind the device is ahead, as an interval; or packets
that went both ways tell it (`alignment`); or both are of cards of one machine, with whose clock
both were compared while they stamped. Times behind the device are brought to the clock before it by
the middle of the interval at that time. What a latency may be off by then is the same for all: half
of the interval where it is widest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tailtap import _core
from tailtap.analysis.evaluation.sources import Path_, Source, source_of
from tailtap.analysis.evaluation.values import Matching, column
from tailtap.base.errors import InputError, WrongValue
from tailtap.base.foreign import read_bytes
from tailtap.base.units import format_time, format_us, parse_time
from tailtap.records.datapath import ByCard, Tap, TappedLink
from tailtap.records.evaluation import (
    ClocksRecord,
    PacketsBothWays,
    Sides,
    Stamps,
    WithinRecord,
)
from tailtap.records.record import Open

if TYPE_CHECKING:
    from tailtap.analysis.clocks.alignment import Times


@dataclass(frozen=True)
class Within:
    """What every latency may be off by, to either side, in ns: the sum, and what it is of."""

    ns: int = 0
    resolution_ns: int = 0
    """How much of it is the resolution of the stamps; the rest is that the clocks are two."""

    @property
    def clocks_ns(self) -> int:
        """How much of it is that the clocks are two."""
        return self.ns - self.resolution_ns

    @property
    def why(self) -> str:
        """What it is of, in words, such as ``two clocks``; empty where it is nothing."""
        found = ["two clocks"] if self.clocks_ns else []
        if self.resolution_ns:
            found.append(f"stamps of {format_time(self.resolution_ns)}")
        return ", ".join(found)

    @property
    def text(self) -> str:
        """``± 1.5 us: two clocks``."""
        return f"± {format_time(self.ns)}: {self.why}"

    @property
    def record(self) -> WithinRecord:
        """`within` of an evaluation."""
        return WithinRecord(
            within_ns=self.ns, clocks_ns=self.clocks_ns, resolution_ns=self.resolution_ns
        )


def within_of(clocks: ClocksRecord | None, inputs: Sides) -> Within:
    """What latencies may be off by, by `clocks` and `inputs` of an evaluation.

    Stamps are cut to steps of the clock, and the steps of the two sides need not be the same: a
    latency is off by less than the longer one. Steps of 1 ns are not counted.
    """
    longest = max(side.resolution_ns for side in inputs.both)
    resolution_ns = longest if longest > 1 else 0
    return Within((clocks.within_ns if clocks else 0) + resolution_ns, resolution_ns)


@dataclass(frozen=True)
class Clocks:
    """How the clock behind the device is to the one before it; times in ns."""

    knots: tuple[tuple[int, int], ...]
    """Times of the clock behind the device, ascending, each with that of the clock before it; lines
    lead from one to the next, and on beyond the last ones."""
    record: ClocksRecord
    """What `evaluation.json` says of it."""

    @property
    def within_ns(self) -> int:
        """The truth is this near to the lines."""
        return self.record.within_ns

    def ingress_ns(self, times: Times) -> Times:
        """Times of the clock before the device for times of that behind it, in ns."""
        import numpy as np

        from tailtap.analysis.clocks.alignment import on_lines

        if len(self.knots) == 1:
            [(theirs, ours)] = self.knots
            return times + (ours - theirs)
        theirs, ours = np.array(self.knots, np.int64).T
        return on_lines(times, theirs, ours)

    def egress_ns(self, times: Times) -> Times:
        """Times of the clock behind the device for times of that before it, in ns."""
        turned = tuple((ours, theirs) for theirs, ours in self.knots)
        return Clocks(turned, self.record).ingress_ns(times)


def parse_interval(text: str) -> tuple[int, int]:
    """The least and the most, in ns, of a text such as ``-3 us..5 us``. Raises `InputError`."""
    ends = text.split("..")
    if len(ends) != 2:
        raise WrongValue(
            "--egress-ahead",
            text,
            "write the least and the most by which the clock "
            "of the second capture is ahead, such as '-3 us..5 us'",
        )
    try:
        least, most = map(_signed, ends)
    except InputError as error:
        raise WrongValue("--egress-ahead", text, str(error)) from error
    if least > most:
        raise InputError(
            f"--egress-ahead '{text}' is reversed: write the least first, "
            f"'{ends[1].strip()}..{ends[0].strip()}'"
        )
    return least, most


def _signed(text: str) -> int:
    number = text.strip()
    sign = -1 if number[:1] in ("-", "−") else 1
    return sign * parse_time(number[1:] if number[:1] in ("+", "-", "−") else number)


def known(least_ns: int, most_ns: int) -> Clocks:
    """Clocks of which the second is ahead by `least_ns` to `most_ns` all the time.

    Raises `InputError` when the least is above the most.
    """
    if least_ns > most_ns:
        raise InputError(f"{least_ns} to {most_ns} ns is no interval: give the least first")
    middle = (least_ns + most_ns) // 2
    knot = (max(middle, 0), max(-middle, 0))
    within_ns = most_ns - middle
    record = ClocksRecord(
        by="interval",
        ahead_ns=[[least_ns, most_ns]],
        widest_ns=2 * within_ns,
        within_ns=within_ns,
    )
    return Clocks((knot,), record)


def aligned(
    ingress: Path_ | Source,
    egress: Path_ | Source,
    back: tuple[Path_ | Source, Path_ | Source],
    *,
    key: str = "auto",
    format: str | None = None,
    nanoseconds: tuple[bool, bool] = (False, False),
    key_after: str | None = None,
    stamps: Stamps | None = None,
    found_within: bool = False,
) -> Clocks:
    """The clocks of two captures by packets both ways, as `alignment.align` does.

    `back` are captures of packets that went the other way: the first one was stamped by the clock
    of `egress`, the second one by that of `ingress`. A packet counts when its key occurs once in
    both captures. Keeps some 120 bytes for each packet. Raises `InputError` when a capture cannot
    be read, when captures have no packet in common, or when a clock stepped. `nanoseconds` is as
    `evaluate` has it, of `ingress` and `egress`; `back` is of the same clocks, and
    `stamps` of all.
    Where `key_after` says what packets of `egress` are matched by, those that went back have that
    key in the first capture of `back`, and `key` in the second. With `found_within`, `back` was
    not given, but found in `ingress` and `egress`: errors say so.
    """
    import numpy as np

    from tailtap.analysis.clocks.alignment import Crossings, Stepped, align

    wanted = None if key == "auto" else key
    names = [source_of(path).name for path in back]
    place = f"{'both directions of' if found_within else '--back'} {' '.join(names)}"
    there: Matching = {
        "key": wanted,
        "format": format,
        "nanoseconds": nanoseconds,
        "stamps": stamps,
    }
    again: Matching = {**there, "nanoseconds": nanoseconds[::-1]}
    if key_after is not None:
        there["key_after"] = again["key"] = key_after
        again["key_after"] = wanted
    forth = _core.crossings(_given(ingress), _given(egress), there)
    try:
        other = _core.crossings(_given(back[0]), _given(back[1]), again)
        if other["trailers"][::-1] != forth["trailers"]:
            raise InputError(
                "stamps of a switch's trailers in one direction, and of records in the other, are "
                "not of the same clocks: say which by --stamps record or trailer"
            )
        ours, theirs = map(column, forth["times"])
        left, came = map(column, other["times"])
        # The later stamp was cut by less than a step: a packet may seem quicker by that.
        steps = map(max, forth["resolutions_ns"], other["resolutions_ns"][::-1])
        cut_ours, cut_theirs = (step - 1 for step in steps)
        found = align(Crossings(ours, theirs, -cut_theirs), Crossings(came, left, -cut_ours))
        lines = found.lines(*forth["spans"][1])
    except Stepped as error:
        mend = (
            ", or say how the clocks are by --egress-ahead"
            if found_within
            else ", and give the capture with the clock of EGRESS first"
        )
        raise InputError(f"{error}; leave that time out{mend}").at(place) from error
    except InputError as error:
        raise InputError(str(error)).at(place) from error
    at = np.array(forth["spans"][0], np.int64)
    least, most = found.ahead_ns(at)
    rates = np.concatenate([piece.corners[:, 1] for piece in found.pieces])
    record = ClocksRecord(
        by="packets",
        ahead_ns=np.column_stack([least, most]).tolist(),
        at_ns=at.tolist(),
        drifts=[float(rates.min()), float(rates.max())],
        packets=PacketsBothWays(there=int(ours.size), back=int(left.size)),
        back=names,
        widest_ns=2 * lines.within_ns,
        within_ns=lines.within_ns,
    )
    return Clocks(lines.knots, record)


def _given(capture: Path_ | Source) -> Path | Source:
    return capture if isinstance(capture, Source) else Path(capture)


def of_cards(ingress: ByCard, egress: ByCard) -> Clocks:
    """The clocks of two taps' cards, by what each showed at times of CLOCK_MONOTONIC.

    Raises `InputError` where one of them was not read, stepped, or changed its rate, and where they
    were read at different times.
    """
    import numpy as np

    from tailtap.analysis.clocks.alignment import FASTEST, ROUNDING_NS, on_lines
    from tailtap.analysis.clocks.host import clock_of_card

    before, behind = map(clock_of_card, (ingress, egress))
    first = max(before.at_ns[0], behind.at_ns[0])
    last = min(before.at_ns[-1], behind.at_ns[-1])
    at = np.unique([first, last, *before.at_ns, *behind.at_ns])
    at = at[(first <= at) & (at <= last)]
    if at.size < 2:
        raise InputError("the clocks of both cards were read at different times: measure again")
    ours, theirs = (on_lines(at, *clock.moments()[::-1]) for clock in (before, behind))
    # What a clock shows is known at a time that the other one's uncertainty leaves open.
    off = np.ceil((before.off_ns(at) + behind.off_ns(at)) * (1 + 2 * FASTEST)).astype(np.int64)
    off += 2 * ROUNDING_NS
    ends = [0, -1]
    within_ns = int(off.max())
    record = ClocksRecord(
        by="readings",
        ahead_ns=np.column_stack([theirs - ours - off, theirs - ours + off])[ends].tolist(),
        at_ns=ours[ends].tolist(),
        drifts=[behind.drifts[0] - before.drifts[1], behind.drifts[1] - before.drifts[0]],
        readings=sum(len(tap.readings.times_ns) for tap in (ingress, egress) if tap.readings),
        widest_ns=2 * within_ns,
        within_ns=within_ns,
    )
    return Clocks(tuple(zip(theirs.tolist(), ours.tolist(), strict=True)), record)


def clocks_of(taps: Mapping[str, Open[Tap]] | None) -> Clocks | None:
    """How the clocks of a run's taps stood to each other; None where they have one.

    Raises `InputError` where nobody knows how they stood.
    """
    ends = [taps[side].known for side in ("ingress", "egress") if taps and side in taps]
    if len({tap.clock_device for tap in ends}) < 2:
        return None
    return of_cards(*ends)


_PRINTED_BYTES = 100_000_000
"""Two clocks that are read for a day."""


class _Printed(msgspec.Struct):
    """A line of ``tailtap tap --json``; the last one tells of the links."""

    links: dict[str, TappedLink] | list[str]


def told_by_tap(path: Path, ingress: Path, egress: Path) -> Clocks:
    """The clocks of two captures by what ``tailtap tap --json`` printed when it wrote them.

    Raises `InputError` where that does not say it of both.
    """
    try:
        lines = read_bytes(path, None, _PRINTED_BYTES).splitlines()
        told = [msgspec.json.decode(line, type=_Printed) for line in lines]
    except (OSError, ValueError) as error:
        raise InputError(
            f"this is not what `tailtap tap --clock hardware --json` printed: {error}"
        ).at(path) from error
    links = [one.links for one in told if isinstance(one.links, dict)]
    taps = [tap for one in links for tap in one.values()]
    found = []
    for capture in (ingress, egress):
        ours = [tap for tap in taps if Path(tap.file).name == capture.name]
        if len(ours) != 1:
            raise InputError(
                f"it tells of {len(ours)} taps that wrote {capture.name}: give what `tailtap tap "
                "--clock hardware --json` printed, and the captures by the names that it gave them"
            ).at(path)
        found.append(ours[0].by_card)
    return of_cards(*found)


def require_shorter(clocks: Clocks, window_ns: int) -> None:
    """Raise `InputError` unless packets can be told from those of another window."""
    if 2 * clocks.within_ns >= window_ns:
        raise InputError(
            f"the clocks are known to {format_time(2 * clocks.within_ns)} only, which is as long "
            f"as --window, {format_time(window_ns)}: give a narrower "
            "--egress-ahead, or --back of quicker packets"
        )


def clocks_text(clocks: ClocksRecord) -> str:
    """What `clocks` of an evaluation says, in one line."""
    ends = [f"{_ahead(least)} to {_ahead(most)}" for least, most in clocks.ahead_ns]
    text = f"two clocks: that of egress is ahead by {' at first, by '.join(dict.fromkeys(ends))}"
    if len(set(ends)) > 1:
        text += " at last"
    if clocks.readings is not None:
        text += f", by {clocks.readings:,} readings"
    if clocks.packets is not None:
        text += f", by {clocks.packets.there:,} packets there and {clocks.packets.back:,} back"
    return text


def _ahead(ns: int) -> str:
    """A difference of clocks, exact: in us, as they may be years apart."""
    return f"{format_us(ns)} us"
