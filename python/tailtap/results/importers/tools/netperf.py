"""Histograms of netperf (`-v 2`, where it was built with them): ten buckets in each decade."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tailtap.results.importers.tools.reading import (
    CLOSED_LOOP,
    MICROSECOND,
    MILLISECOND,
    OPEN,
    SECOND,
    Reading,
    bucketed,
    number,
)

_UNITS = {"NSEC": 1, "USEC": MICROSECOND, "MSEC": MILLISECOND, "SEC": SECOND}
_TIMES = {"UNIT": 1, "TEN": 10, "HUNDRED": 100}
_ROW = re.compile(r"^(UNIT|TEN|HUNDRED)_([NUM]?SEC) *((?:: *\d+){10})", re.M)
_BEYOND = re.compile(r"^(?:>100_SECS|100_PLUS_SEC) *: *(\d+)", re.M)


def knows(head: str) -> bool:
    """Whether a file begins like one."""
    return _ROW.search(head) is not None


def read(text: str) -> Iterator[Reading]:
    """Its histogram. Raises `ValueError`."""
    rows = []
    for times, unit, counts in _ROW.findall(text):
        width = _TIMES[times] * _UNITS[unit]
        for place, count in enumerate(counts.replace(":", " ").split()):
            rows.append((place * width, (place + 1) * width - 1, number(count, "transactions")))
    if beyond := _BEYOND.search(text):
        rows.append((100 * SECOND, OPEN, number(beyond[1], "transactions")))
    yield Reading(bucketed(rows), doubts=(CLOSED_LOOP,))
