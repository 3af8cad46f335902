"""The terms of a search: its settings, a trial, its result, the bounds that follow.

Rates are packets a second, times nanoseconds, losses ratios from 0 to 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tailtap.base.errors import InputError
from tailtap.base.units import format_rate, format_time
from tailtap.records.search import Reason


@dataclass(frozen=True)
class Settings:
    """The settings of a search."""

    losses: tuple[float, ...]
    """Allowed loss ratios, ascending: one answer for each."""
    low: int
    high: int
    precision: float = 0.02
    """The distance that the bounds may have, as a share of the upper one."""
    trial: int = 2_000_000_000
    """Duration in ns of a full trial, which decides about a rate."""
    trials: int = 3
    """How many full trials decide about a rate (`mlr`)."""
    exceed: float = 0.5
    """The share of them, by time, that may lose more than allowed (`mlr`)."""
    short: int = 500_000_000
    """Duration in ns of a trial that only guides the search (`mlr`)."""
    tries: int = 3
    """How often the generator may fail at a rate before the search gives that rate up."""

    def __post_init__(self) -> None:
        """Raise `InputError` for settings that make no sense."""
        if not self.losses or any(not 0 <= loss < 1 for loss in self.losses):
            raise InputError("--loss must be at least 0 and below 100 %: give 0 or 0.5%")
        if list(self.losses) != sorted(set(self.losses)):
            raise InputError("--loss is given twice with the same value: leave one out")
        if not 1 <= self.low < self.high:
            raise InputError(
                f"--from {format_rate(self.low)} is not below --to {format_rate(self.high)}"
            )
        if not 0.0001 <= self.precision < 1:
            raise InputError("--precision must be at least 0.01 % and below 100 %")
        if not 0 <= self.exceed < 1:
            raise InputError("--exceed must be at least 0 and below 1")
        if self.trials < 1 or self.tries < 1:
            raise InputError("--trials must be at least 1")
        if not 0 < self.short <= self.trial:
            raise InputError(
                f"--short {format_time(self.short)} must be above zero and not longer "
                f"than --trial {format_time(self.trial)}"
            )


@dataclass(frozen=True)
class Trial:
    """Something to try."""

    rate: int
    duration: int
    give_up: float | None = None
    """The loss of a trial above which the rest of the trial cannot change any answer."""


@dataclass(frozen=True)
class Result:
    """The result of a trial."""

    trial: Trial
    packets: int
    """Packets that the loss is a ratio of: those before the device or, where the trial was given
    up, those that it would have sent.
    """
    lost: int
    """Packets that did not come out; at least so many where the trial was given up."""
    achieved: float
    """The rate in pkt/s at which packets came to the device."""
    doubt: str | None = None
    """Why the generator did not send what was asked of it; None when it did."""
    given_up: bool = False

    @property
    def valid(self) -> bool:
        """Whether the trial tells something about the device."""
        return self.doubt is None

    @property
    def loss(self) -> float:
        """The loss ratio; of a trial that was given up, its lower limit."""
        return self.lost / self.packets if self.packets else 1.0

    @property
    def forwarded(self) -> float:
        """The rate in pkt/s at which packets left the device."""
        return self.achieved * (1 - self.loss)


@dataclass(frozen=True)
class Bounds:
    """The bounds of the highest rate with at most `loss`: at least `lower`, below `upper`."""

    loss: float
    lower: int | None
    """The highest rate that was found to hold; None when not even the lowest does."""
    upper: int | None
    """The lowest rate above it that was found not to hold; None at the end of the range."""
    reason: Reason


def unable(results: Iterable[Result], rate: int, tries: int) -> bool:
    """Whether the search takes the generator to be too slow for `rate`.

    Each trial in which it did send the rate allows `tries` more: a busy machine spoils some.
    """
    there = [result.valid for result in results if result.trial.rate == rate]
    return there.count(False) >= tries * (1 + there.count(True))


def rounded(rate: float, lower: int, upper: int, precision: float) -> int:
    """`rate` rounded to few digits, strictly between `lower` and `upper`.

    The rounding is finer than a tenth of the precision. Where no round number lies between, the
    result is exact.
    """
    digits = max(0, math.floor(math.log10(max(rate * precision, 1))) - 1)
    step = int(10**digits)
    near = round(rate / step) * step
    if lower < near < upper:
        return near
    return min(max(round(rate), lower + 1), upper - 1)


def close(lower: int, upper: int, width: float) -> bool:
    """Whether two bounds are as near as asked, or as integers can be."""
    return upper - lower <= max(width * upper, 1)
