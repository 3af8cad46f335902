"""What stands on the axes of a figure: how it is read, written and labelled."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tailtap.analysis.runs.text import count_text, percent_text, rate_text, share_text, time_text
from tailtap.base.errors import InputError
from tailtap.base.units import parse_rate, parse_share, parse_time

_PERCENTILE = re.compile(r"p?\s*([0-9]{1,3}(?:\.[0-9]{1,20})?)\s*%?")


def parse_percentile(text: str) -> float:
    """The share from 0 to 1 of ``p99.9``, ``99.9 %`` or ``max``.

    Raises `InputError` for a text that is none.
    """
    if text == "max":
        return 1.0
    match = _PERCENTILE.fullmatch(text.strip())
    if match is None or not 0 <= float(match[1]) < 100:
        raise InputError(f"{text!r} is no percentile: write p99.9, or max for the largest")
    return float(match[1]) / 100


def _tail(text: str) -> float:
    """The place of a percentile on the axis of an HDR diagram: x = 1/(1-p)."""
    p = parse_percentile(text)
    if p == 1:
        raise InputError("the axis has no end: name a percentile, such as 99.999 %")
    return 1 / (1 - p)


def _seconds(text: str) -> float:
    return parse_time(text) / 1e9


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise InputError(f"{text!r} is no number") from error


def _count(number: float) -> str:
    return (
        count_text(round(number))
        if abs(number) >= 10 or number == round(number)
        else (f"{number:.3g}")
    )


@dataclass(frozen=True)
class Quantity:
    """Something that is measured."""

    column: str
    """Its column in a file, with the unit."""
    parse: Callable[[str], float]
    """A text of an experiment file in base units. Raises `InputError`."""
    text: Callable[[float], str]
    """A value in base units, for ticks and tables."""
    example: str
    """How a bound of an axis is written."""


TIME = Quantity("ns", parse_time, time_text, "100 us")
SECONDS = Quantity("s", _seconds, lambda s: f"{s:g}", "10 s")
TAIL = Quantity("1/(1-p)", _tail, lambda x: percent_text(round(1 - 1 / max(x, 1), 12)), "99.9 %")
RATE = Quantity("pkt/s", parse_rate, rate_text, "10 kpkt/s")
PACKETS = Quantity("packets", _number, _count, "1000")
SHARE = Quantity("share", parse_share, share_text, "0.1 %")
NUMBER = Quantity("value", _number, _count, "1000")
PER_CENT = Quantity("per_cent", _number, lambda share: f"{share:g}\u00a0%", "50")
RATIO = Quantity("value", _number, lambda number: f"{number:g}", "0.5")
CATEGORY = Quantity("value", _number, str, "1")
"""Values without an order of their own, at 0, 1, 2, …"""
