"""Shares, counts and durations in the words of a verdict."""

from __future__ import annotations

import numpy as np

_DURATIONS = ((172_800.0, 86_400.0, "days"), (7_200.0, 3_600.0, "h"), (120.0, 60.0, "min"))


def share_words(share: float) -> str:
    """A share as per cent, with two digits of what it lacks to 0 or to 100: ``99.9991 %``."""
    if share > 0.5:
        missing = _percent(1 - share)
        decimals = len(missing.partition(".")[2])
        return f"{100 - float(missing):.{decimals}f} %"
    return f"{_percent(share)} %"


def _percent(share: float) -> str:
    return np.format_float_positional(
        100 * share, precision=2, fractional=False, unique=False, trim="-"
    )


def count_words(count: int, unit: str) -> str:
    """A count and its unit: ``1 packet``, ``1,000 packets``."""
    return f"{count:,} {unit}{'' if count == 1 else 's'}"


def duration_words(seconds: float) -> str:
    """A time that somebody has to wait: ``20 s``, ``2.8 h``."""
    for least, factor, unit in _DURATIONS:
        if seconds >= least:
            return (
                f"{seconds / factor:,.3g} {unit}"
                if seconds < 1000 * factor
                else (f"{seconds / factor:,.0f} {unit}")
            )
    return f"{seconds:.3g} s"
