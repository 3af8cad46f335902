"""Texts of HdrHistogram: its spectrum of percentiles, as others print it too, and its logs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from tailtap.records.record import Notice
from tailtap.results.importers.tools.hdr import decode
from tailtap.results.importers.tools.reading import (
    CUT_OFF,
    MICROSECOND,
    Reading,
    bucketed,
    nanoseconds,
    number,
    unknown_unit,
)

_ROW = re.compile(r"^\s*([\d.]+)\s+([\d.]+)\s+(\d+)(?:\s+[\d.infNa]+)?\s*$", re.M)
_MAX = re.compile(r"#\[Max\s+=\s*([\d.]+)")
_MEAN = re.compile(r"#\[Mean\s+=\s*([\d.]+)")
OURS = re.compile(r"#\[Buckets = +1,")
"""Latencies that are not rounded, as tailtap writes them: in us."""
_LINE = re.compile(r"(?:Tag=(?P<tag>[^,]*),)?(?:[\d.eE+-]+,){3}(?P<code>(?P<kind>D?HIST)\S+)")
_BEGUN = re.compile(r"\d|Tag=")
MARKS = ",HISTF", ",DHIST"
"""What every line with a histogram has: the beginning of its encoding, of integers or doubles."""
NANOSECONDS = "#[Values are in ns]"
"""A comment that tailtap writes: the format itself has no place for a unit."""


def read_hgrm(text: str, unit: int | None = None) -> Iterator[Reading]:
    """The whole distribution; values of others count as us. Raises `ValueError`."""
    doubts = () if unit or OURS.search(text) else (unknown_unit(),)
    yield spectrum(text, unit or MICROSECOND, doubts=doubts)


def spectrum(body: str, unit: int, **more: object) -> Reading:
    """The reading of a spectrum whose values are of so many ns. Raises `ValueError`."""
    rows: list[tuple[int, int, int]] = []
    below, floor = 0, None
    share = 0.0
    for value, percentile, reached in _ROW.findall(body):
        share = float(percentile)
        top, count = nanoseconds(value, unit), number(reached, "requests")
        if count > below:
            # The first row is of the smallest value, and no bucket.
            rows.append((top if floor is None else min(floor, top), top, count - below))
        floor, below = top, max(below, count)
    if not rows:
        raise ValueError("it has no detailed percentile spectrum")
    if share != 1:
        raise ValueError("it ends before its last percentile")
    maximum, mean = _MAX.search(body), _MEAN.search(body)
    return Reading(
        bucketed(rows),
        maximum=nanoseconds(maximum[1], unit) if maximum else None,
        mean=float(mean[1]) * unit if mean else None,
        **more,  # type: ignore[arg-type]
    )


def read_hlog(text: str, unit: int | None = None) -> Iterator[Reading]:
    """A reading for each tag: all stretches together. Raises `ValueError`."""
    found: dict[str, Counter[tuple[int, int]]] = {}
    doubts = [] if unit or NANOSECONDS in text else [unknown_unit()]
    lines = text.splitlines()
    doubles: set[str] = set()
    for place, line in enumerate(lines):
        last = place == len(lines) - 1 and not text.endswith("\n")
        if line.startswith("#") or not any(mark in line for mark in MARKS):
            if last and _BEGUN.match(line):
                doubts.append(CUT_OFF)
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
            if last and found:
                doubts.append(CUT_OFF)
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
