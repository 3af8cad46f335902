"""Logs of HdrHistogram, version 2: a histogram for each stretch of time, by tag."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from tailtap.records.record import Notice
from tailtap.results.importers.tools.hdr import decode
from tailtap.results.importers.tools.reading import Reading, bucketed, unknown_unit

_LINE = re.compile(r"(?:Tag=(?P<tag>[^,]*),)?(?:[\d.eE+-]+,){3}(?P<code>(?P<kind>D?HIST)\S+)")
MARKS = ",HISTF", ",DHIST"
"""What every line with a histogram has: the beginning of its encoding, of integers or doubles."""
NANOSECONDS = "#[Values are in ns]"
"""A comment that tailtap writes: the format itself has no place for a unit."""


def knows(head: str) -> bool:
    """Whether a file begins like one."""
    return "[Histogram log format version" in head or any(mark in head for mark in MARKS)


def read(text: str, unit: int | None = None) -> Iterator[Reading]:
    """A reading for each tag: all stretches together. Raises `ValueError`."""
    found: dict[str, Counter[tuple[int, int]]] = {}
    doubts = [] if unit or NANOSECONDS in text else [unknown_unit()]
    lines = text.splitlines()
    doubles: set[str] = set()
    for place, line in enumerate(lines):
        if line.startswith("#") or not any(mark in line for mark in MARKS):
            continue
        try:
            if (match := _LINE.fullmatch(line.strip())) is None:
                raise ValueError("a line of it is no interval")
            tag = match["tag"] or ""
            if match["kind"] == "DHIST":
                doubles.add(tag)
                continue
            buckets = decode(match["code"])
        except ValueError:
            if place == len(lines) - 1 and found and not text.endswith("\n"):
                told = "it ends within a line, which is left out: the program was stopped"
                doubts.append(Notice("read-in-part", told))
                break
            raise
        ends = zip(buckets.low.tolist(), buckets.high.tolist(), strict=True)
        found.setdefault(tag, Counter()).update(
            dict(zip(ends, buckets.count.tolist(), strict=True))
        )
    if doubles and not found:
        raise ValueError("its histograms are of doubles, which are not read")
    if doubles:
        names = ", ".join(tag or "without a tag" for tag in sorted(doubles))
        told = f"its intervals {names} are histograms of doubles, which are not read"
        doubts.append(Notice("read-in-part", told))
    for tag, totals in found.items():
        rows = [
            (low * (unit or 1), (high + 1) * (unit or 1) - 1, count)
            for (low, high), count in totals.items()
        ]
        yield Reading(bucketed(rows), name=tag, doubts=tuple(doubts))
