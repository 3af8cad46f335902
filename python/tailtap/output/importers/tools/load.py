"""Results of load generators for HTTP and gRPC in JSON: fortio and ghz."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tailtap.output.importers.published import MOST_RATE
from tailtap.output.importers.tools.reading import (
    CLOSED_LOOP,
    SECOND,
    Reading,
    bucketed,
    exact,
    nanoseconds,
    number,
)
from tailtap.records.foreign import parse_json


def knows_fortio(head: str) -> bool:
    """Whether a file begins like one of fortio."""
    return head.lstrip().startswith("{") and '"RunType"' in head and '"RequestedQPS"' in head


def read_fortio(text: str) -> Iterator[Reading]:
    """Its histogram of durations. Raises `ValueError`."""
    found = _object(parse_json(text))
    histogram = _object(found.get("DurationHistogram"))
    rows = [
        (nanoseconds(_object(one)["Start"], SECOND), nanoseconds(_object(one)["End"], SECOND),
         number(_object(one)["Count"], "requests"))
        for one in histogram.get("Data") or ()
    ]  # fmt: skip
    asked = str(found.get("RequestedQPS", ""))
    paced = asked.replace(".", "", 1).isdigit() and 1 <= float(asked) < MOST_RATE
    yield Reading(
        # A bucket ends where the next one begins, and holds its end.
        bucketed((start + bool(n), end, count) for n, (start, end, count) in enumerate(rows)),
        rate=round(float(asked)) if paced else None,
        minimum=nanoseconds(histogram["Min"], SECOND),
        mean=float(histogram["Avg"]) * SECOND,
        maximum=nanoseconds(histogram["Max"], SECOND),
        doubts=(CLOSED_LOOP,),  # each of its connections is
    )


def knows_ghz(head: str) -> bool:
    """Whether a file begins like one of ghz."""
    return head.lstrip().startswith("{") and '"fastest"' in head and '"slowest"' in head


def read_ghz(text: str) -> Iterator[Reading]:
    """Its single requests where it has them, or its histogram. Raises `ValueError`."""
    found = _object(parse_json(text))
    details = [_object(one) for one in found.get("details") or ()]
    good = [one for one in details if one.get("status", "OK") == "OK" and not one.get("error")]
    fastest = nanoseconds(found["fastest"], 1)
    rows, start = [], fastest
    for one in map(_object, found.get("histogram") or ()):
        mark = nanoseconds(one["mark"], SECOND)
        rows.append((min(start, mark), mark, number(one["count"], "requests")))
        start = mark + 1
    options = found.get("options")
    asked = _object(options).get("rps") if isinstance(options, Mapping) else None
    yield Reading(
        exact(nanoseconds(one["latency"], 1) for one in good) if good else bucketed(rows),
        lost=len(details) - len(good) if details else None,
        rate=number(asked, "requests") if asked else None,
        minimum=fastest,
        mean=float(found["average"]),
        maximum=nanoseconds(found["slowest"], 1),
        doubts=(CLOSED_LOOP,),
    )


def _object(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{str(value)[:40]!r} stands where a mapping should")
    return value
