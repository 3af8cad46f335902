"""What wrk2 prints with --latency, and wrk: a spectrum of HdrHistogram, or a few percentiles."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tailtap.output.importers.tools.reading import (
    CLOSED_LOOP,
    MILLISECOND,
    SECOND,
    Reading,
    bucketed,
    nanoseconds,
    number,
    share,
)

_UNITS = {"us": 1_000, "ms": MILLISECOND, "s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND}
_SECTION = re.compile(
    r"Latency Distribution \(HdrHistogram - (?P<name>[^)]*?) ?Latency[^)]*\)(?P<body>.*?)"
    r"(?=Latency Distribution|\Z)",
    re.S,
)
_ROW = re.compile(r"^\s*([\d.]+)\s+([\d.]+)\s+(\d+)\s+[\d.infNa]+\s*$", re.M)
_MAX = re.compile(r"#\[Max\s+=\s*([\d.]+)")
_MEAN = re.compile(r"#\[Mean\s+=\s*([\d.]+)")
_PERCENTILE = re.compile(r"^\s*([\d.]+)%\s+([\d.]+)(us|ms|s|m|h)\s*$", re.M)
_TOTAL = re.compile(r"^\s*(\d+) requests in ", re.M)


def knows(head: str) -> bool:
    """Whether a file begins like one."""
    return "Running " in head and "Thread Stats" in head


def read(text: str) -> Iterator[Reading]:
    """The corrected latencies of wrk2, then the others; or those of wrk. Raises `ValueError`."""
    sections = list(_SECTION.finditer(text))
    for section in sections:
        uncorrected = "Uncorrected" in section["name"] or "without taking" in section[0][:200]
        yield _spectrum(section["body"], uncorrected=uncorrected)
    if not sections:
        yield Reading(
            percentiles=[
                (share(percent), nanoseconds(value, _UNITS[unit]))
                for percent, value, unit in _PERCENTILE.findall(text)
            ],
            total=number(total[1], "requests") if (total := _TOTAL.search(text)) else None,
            doubts=(CLOSED_LOOP,),
        )


def _spectrum(body: str, *, uncorrected: bool) -> Reading:
    rows, below, floor = [], 0, 0
    for value, _, reached in _ROW.findall(body):
        top, count = nanoseconds(value, MILLISECOND), number(reached, "requests")
        if count > below:
            rows.append((min(floor, top), top, count - below))
        floor, below = top, max(below, count)
    if not rows:
        raise ValueError("it has no detailed percentile spectrum: run wrk2 with --latency")
    # The first row is of the smallest value, and no bucket.
    rows[0] = (rows[0][1], *rows[0][1:])
    maximum, mean = _MAX.search(body), _MEAN.search(body)
    return Reading(
        bucketed(rows),
        maximum=nanoseconds(maximum[1], MILLISECOND) if maximum else None,
        mean=float(mean[1]) * MILLISECOND if mean else None,
        name="uncorrected" if uncorrected else "",
        doubts=(CLOSED_LOOP,) if uncorrected else (),
    )
