"""HdrHistogram's spectrum of percentiles as text: in files of its own, or as others print it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tailtap.results.importers.tools.reading import (
    MICROSECOND,
    Reading,
    bucketed,
    nanoseconds,
    number,
    unknown_unit,
)

_HEAD = re.compile(r"\s*Value +Percentile +TotalCount +1/\(1-Percentile\)")
_ROW = re.compile(r"^\s*([\d.]+)\s+([\d.]+)\s+(\d+)(?:\s+[\d.infNa]+)?\s*$", re.M)
_MAX = re.compile(r"#\[Max\s+=\s*([\d.]+)")
_MEAN = re.compile(r"#\[Mean\s+=\s*([\d.]+)")
OURS = re.compile(r"#\[Buckets = +1,")
"""Latencies that are not rounded, as tailtap writes them: in us."""


def knows(head: str) -> bool:
    """Whether a file begins like one."""
    return _HEAD.match(head) is not None


def read(text: str, unit: int | None = None) -> Iterator[Reading]:
    """The whole distribution; values of others count as us. Raises `ValueError`."""
    doubts = () if unit or OURS.search(text) else (unknown_unit(),)
    yield spectrum(text, unit or MICROSECOND, doubts=doubts)


def spectrum(body: str, unit: int, **more: object) -> Reading:
    """The reading of a spectrum whose values are of so many ns. Raises `ValueError`."""
    rows: list[tuple[int, int, int]] = []
    below, floor = 0, None
    for value, _, reached in _ROW.findall(body):
        top, count = nanoseconds(value, unit), number(reached, "requests")
        if count > below:
            # The first row is of the smallest value, and no bucket.
            rows.append((top if floor is None else min(floor, top), top, count - below))
        floor, below = top, max(below, count)
    if not rows:
        raise ValueError("it has no detailed percentile spectrum")
    maximum, mean = _MAX.search(body), _MEAN.search(body)
    return Reading(
        bucketed(rows),
        maximum=nanoseconds(maximum[1], unit) if maximum else None,
        mean=float(mean[1]) * unit if mean else None,
        **more,  # type: ignore[arg-type]
    )
