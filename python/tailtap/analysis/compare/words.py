"""Numbers of a comparison as text."""

from __future__ import annotations

from tailtap.analysis.compare.significance import Shift
from tailtap.analysis.evaluation.percentiles import label
from tailtap.records.compare import Rank


def percentile_text(p: float) -> str:
    """A percentile as people write it; 1 is the maximum."""
    return "max" if p == 1 else label(p)


def rank_text(rank: Rank | None) -> str:
    """A rank: ``2``, or ``1 to 3``; empty without one."""
    if rank is None:
        return ""
    more = "" if rank.best == rank.last else f" to {rank.last}"
    return f"{rank.best}{more}"


def ratio_text(shift: Shift) -> str:
    """A ratio with its interval: ``x1.83 (1.20 to 2.41)``."""
    if shift.ratio is None:
        return "no ratio"
    text = f"x{_digits(shift.ratio)}"
    if shift.low is None or shift.high is None:
        return text
    return f"{text} ({_digits(shift.low)} to {_digits(shift.high)})"


def _digits(ratio: float) -> str:
    return f"{ratio:,.2f}" if ratio < 100 else f"{ratio:,.0f}"
