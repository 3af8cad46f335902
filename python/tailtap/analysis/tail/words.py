"""Return levels and reasons in the words of users."""

from __future__ import annotations

import math

from tailtap.analysis.tail.assessment import Level
from tailtap.base.units import exact_time, format_rate

_UNITS = (("s", 1e9), ("ms", 1e6), ("us", 1e3), ("ns", 1.0))


def level_words(horizon_ns: int, rate: float, level: Level | None) -> str:
    """``once in 24 h at 10 kpkt/s: 34.0 us (31.9 to 40.2)``, or that there is no number."""
    return f"once in {exact_time(horizon_ns)} at {format_rate(rate)}: " + (
        "no number" if level is None else level_text(level)
    )


def level_text(level: Level) -> str:
    """A level and its 95 % interval in one unit: ``34.0 us (31.9 to 40.2)``."""
    unit, factor = next(
        ((unit, factor) for unit, factor in _UNITS if level.value >= factor), _UNITS[-1]
    )
    # Three digits, and a tenth of the interval is still seen.
    width = (level.high or level.value) - (level.low or level.value)
    digits = max(2 - _magnitude(level.value / factor), 1 - _magnitude(width / factor))
    places = min(max(digits, 0), 3 if factor > 1 else 0)

    def number(ns: float) -> str:
        return f"{ns / factor:,.{places}f}"

    if level.low is None:
        interval = "no interval"
    elif level.high is None:
        interval = f"{number(level.low)} or more"
    else:
        interval = f"{number(level.low)} to {number(level.high)}"
    return f"{number(level.value)} {unit} ({interval})"


def _magnitude(value: float) -> int:
    return math.floor(math.log10(value)) if value > 0 else 0
