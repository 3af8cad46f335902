"""Two clocks: how the one behind the device is to the one before it, and what that leaves open.

Either somebody knows by how much the clock behind the device is ahead, as an interval; or packets
that went both ways tell it (`alignment`). Times behind the device are brought to the clock before
it by the middle of the interval at that time. What a latency may be off by then is the same for
all: half of the interval where it is widest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from tailtap import _core
from tailtap.errors import InputError
from tailtap.evaluation.values import column
from tailtap.units import format_time, format_us, parse_time

Path_ = str | PathLike[str]


@dataclass(frozen=True)
class Clocks:
    """How the clock behind the device is to the one before it; times in ns."""

    knots: tuple[tuple[int, int], ...]
    """Times of the clock behind the device, ascending, each with that of the clock before it; lines
    lead from one to the next, and on beyond the last ones."""
    within_ns: int
    """The truth is this near to the lines."""
    told: dict[str, Any] = field(default_factory=dict)
    """What `evaluation.json` says of it, beside `within_ns`."""

    def as_json(self) -> dict[str, Any]:
        """`clocks` of an evaluation's JSON."""
        return {**self.told, "widest_ns": 2 * self.within_ns, "within_ns": self.within_ns}


def parse_interval(text: str) -> tuple[int, int]:
    """The least and the most, in ns, of a text such as ``-3 us..5 us``. Raises `InputError`."""
    ends = text.split("..")
    if len(ends) != 2:
        raise InputError(
            f"--egress-ahead '{text}': write the least and the most by which the clock of the "
            "second capture is ahead, such as '-3 us..5 us'"
        )
    try:
        least, most = map(_signed, ends)
    except InputError as error:
        raise InputError(f"--egress-ahead '{text}': {error}") from error
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
    told = {"by": "interval", "ahead_ns": [[least_ns, most_ns]]}
    return Clocks((knot,), most_ns - middle, told)


def aligned(
    ingress: Path_,
    egress: Path_,
    back: tuple[Path_, Path_],
    *,
    key: str = "auto",
    format: str | None = None,
) -> Clocks:
    """The clocks of two captures by packets both ways, as `alignment.align` does.

    `back` are captures of packets that went the other way: the first one was stamped by the clock
    of `egress`, the second one by that of `ingress`. A packet counts when its key occurs once in
    both captures. Keeps some 120 bytes for each packet. Raises `InputError` when a capture cannot
    be read, when captures have no packet in common, or when a clock stepped.
    """
    import numpy as np

    from tailtap.alignment import Crossings, Stepped, align

    wanted = None if key == "auto" else key
    forth = _core.crossings(Path(ingress), Path(egress), key=wanted, format=format)
    try:
        other = _core.crossings(Path(back[0]), Path(back[1]), key=wanted, format=format)
        ours, theirs = map(column, forth["times"])
        left, came = map(column, other["times"])
        found = align(Crossings(ours, theirs), Crossings(came, left))
        lines = found.lines(*forth["spans"][1])
    except Stepped as error:
        raise InputError(
            f"--back {back[0]} {back[1]}: {error}; leave that time out, and give the capture with "
            "the clock of EGRESS first"
        ) from error
    except InputError as error:
        raise InputError(f"--back {back[0]} {back[1]}: {error}") from error
    at = np.array(forth["spans"][0], np.int64)
    least, most = found.ahead_ns(at)
    told = {
        "by": "packets",
        "ahead_ns": np.column_stack([least, most]).tolist(),
        "at_ns": at.tolist(),
        "drifts": _drifts([piece.corners[:, 1] for piece in found.pieces]),
        "packets": {"there": int(ours.size), "back": int(left.size)},
        "back": [str(path) for path in back],
    }
    return Clocks(lines.knots, lines.within_ns, told)


def _drifts(pieces: Sequence[Any]) -> list[float]:
    """How much faster the second clock runs, the least and the most."""
    return [float(min(piece.min() for piece in pieces)), float(max(map(max, pieces)))]


def require_shorter(clocks: Clocks, window_ns: int) -> None:
    """Raise `InputError` unless packets can be told from those of another window."""
    if 2 * clocks.within_ns >= window_ns:
        raise InputError(
            f"the clocks are known to {format_time(2 * clocks.within_ns)} only, which is as long "
            f"as --window, {format_time(window_ns)}: give a narrower --egress-ahead, or --back of "
            "quicker packets"
        )


def within_text(within_ns: int) -> str:
    """``± 1.5 us: two clocks``."""
    return f"± {format_time(within_ns)}: two clocks"


def clocks_text(clocks: dict[str, Any]) -> str:
    """What `clocks` of an evaluation's JSON says, in one line."""
    ends = [f"{_ahead(least)} to {_ahead(most)}" for least, most in clocks["ahead_ns"]]
    text = f"two clocks: that of egress is ahead by {' at first, by '.join(dict.fromkeys(ends))}"
    if len(set(ends)) > 1:
        text += " at last"
    if clocks["by"] == "packets":
        packets = clocks["packets"]
        text += f", by {packets['there']:,} packets there and {packets['back']:,} back"
    return text


def _ahead(ns: int) -> str:
    """A difference of clocks, exact: in us, as they may be years apart."""
    return f"{format_us(ns)} us"
