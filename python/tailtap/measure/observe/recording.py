"""What a flight recorder is to keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tailtap.analysis.live.numbers import parse_trigger
from tailtap.base.errors import InputError, WrongValue
from tailtap.base.units import format_time


@dataclass(frozen=True)
class Recording:
    """What is kept of what is observed."""

    above: Sequence[str]
    """What makes an incident: see `parse_trigger`."""
    keep_ns: int = 1_000_000_000
    """How long before what makes it an incident begins; a packet that has not come after so long
    is lost."""
    incidents: int = 100
    rate: tuple[int, int] | None = None
    """At most so many incidents in so many ns."""
    then: str | None = None
    memory: int = 1 << 30
    """What is kept in memory takes so many bytes at most."""

    def __post_init__(self) -> None:
        """Raise `InputError` for what is no trigger, and for a time that is too long or short."""
        for text in self.above:
            parse_trigger(text)
        if not 100_000_000 <= self.keep_ns <= 60_000_000_000:
            raise InputError(
                f"--keep {format_time(self.keep_ns)!r}: give a time from 100 ms to 60 s"
            )


def parse_rate(text: str) -> tuple[int, int]:
    """``1/min``, ``10/h``: how many, in how many ns. Raises `InputError`."""
    units = {"s": 1, "min": 60, "h": 3600, "d": 86400}
    number, slash, unit = text.replace(" ", "").partition("/")
    if not (slash and number.isascii() and number.isdecimal() and int(number) and unit in units):
        raise WrongValue("--rate", text, "write how many incidents in a time, such as 1/min")
    return int(number), units[unit] * 1_000_000_000
