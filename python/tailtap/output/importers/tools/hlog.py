"""Logs of HdrHistogram, version 2: a histogram for each stretch of time, by tag."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import chain

from tailtap.output.importers.tools.hdr import Buckets, decode
from tailtap.output.importers.tools.reading import MILLISECOND, Reading, bucketed
from tailtap.records.record import Notice

_LINE = re.compile(
    r"(?:Tag=(?P<tag>[^,]*),)?[\d.eE+-]+,[\d.eE+-]+,(?P<max>[\d.eE+-]+),(?P<code>HISTF\S+)"
)
MARK = ",HISTF"
"""What every line with a histogram has: the beginning of its encoding."""
NEAR = 0.02
UNKNOWN = Notice(
    "unit-unknown",
    "a log does not say its unit, and its column of maxima is none in ms: its values count as ns",
)


def knows(head: str) -> bool:
    """Whether a file begins like one."""
    return "[Histogram log format version" in head or MARK in head


def read(text: str) -> Iterator[Reading]:
    """A reading for each tag: all stretches together. Raises `ValueError`."""
    found: dict[str, list[Buckets]] = {}
    doubts: dict[str, list[Notice]] = {}
    for line in text.splitlines():
        match = _LINE.fullmatch(line.strip())
        if match is None:
            if MARK in line:
                raise ValueError("a line of it is no interval")
            continue
        tag, buckets = match["tag"] or "", decode(match["code"])
        found.setdefault(tag, []).append(buckets)
        doubts.setdefault(tag, [])
        most = int(buckets.high[-1]) if buckets.count.size else 0
        told = float(match["max"]) * MILLISECOND
        if most and not math.isclose(told, most, rel_tol=NEAR, abs_tol=MILLISECOND):
            doubts[tag] = [UNKNOWN]
    for tag, parts in found.items():
        rows = chain.from_iterable(
            zip(one.low.tolist(), one.high.tolist(), one.count.tolist(), strict=True)
            for one in parts
        )
        yield Reading(bucketed(_added(rows)), name=tag, doubts=tuple(doubts[tag]))


def _added(rows: Iterator[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    """Equal buckets of several stretches as one."""
    totals: dict[tuple[int, int], int] = {}
    for low, high, count in rows:
        totals[low, high] = totals.get((low, high), 0) + count
    return ((low, high, count) for (low, high), count in totals.items())
