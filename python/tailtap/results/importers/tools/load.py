"""Results of load generators for HTTP and gRPC in JSON: fortio and ghz."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tailtap.base.foreign import parse_json
from tailtap.records.record import Notice
from tailtap.results.importers.published import MOST_RATE
from tailtap.results.importers.tools.reading import (
    CLOSED_LOOP,
    SECOND,
    Reading,
    bucketed,
    coded,
    exact,
    mapping,
    nanoseconds,
    number,
)

_GOOD = frozenset(("OK", "SERVING", "418"))
"""What fortio calls good besides HTTP's 2xx; TCP and UDP have OK, gRPC's health SERVING."""
_UNANSWERED = frozenset(("Unavailable", "DeadlineExceeded", "Canceled"))
"""Statuses of gRPC that a client gives where no answer came."""


def knows_fortio(head: str) -> bool:
    """Whether a file begins like one of fortio."""
    return head.lstrip().startswith("{") and '"RunType"' in head and '"RequestedQPS"' in head


def read_fortio(text: str) -> Iterator[Reading]:
    """Its histogram of durations, less that of failures. Raises `ValueError`."""
    found = mapping(parse_json(text))
    histogram = mapping(found.get("DurationHistogram"))
    rows = _durations(histogram)
    failed = mapping(found.get("ErrorsDurationHistogram") or {})
    codes = mapping(found.get("RetCodes") or {})
    errors, told = coded(codes, lambda code: code in _GOOD or (code[:1] == "2" and len(code) == 3))
    errors = max(errors, number(failed.get("Count") or 0, "requests"))
    sent = sum(count for *_, count in rows)
    left = _less(rows, _durations(failed))
    among = 0 if sum(count for *_, count in left) == sent - errors else min(errors, sent)
    asked = str(found.get("RequestedQPS", ""))
    paced = asked.replace(".", "", 1).isdigit() and 1 <= float(asked) < MOST_RATE
    all_of_them = among or not errors
    yield Reading(
        bucketed(rows if among else left),
        errors=errors if codes or failed else None,
        among=among,
        failures=told,
        requests=sent,
        rate=round(float(asked)) if paced else None,
        minimum=nanoseconds(histogram["Min"], SECOND) if all_of_them else None,
        mean=float(histogram["Avg"]) * SECOND if all_of_them else None,
        maximum=nanoseconds(histogram["Max"], SECOND) if all_of_them else None,
        doubts=(CLOSED_LOOP,),  # each of its connections is
    )


def _durations(histogram: Mapping[str, object]) -> list[tuple[int, int, int]]:
    data = histogram.get("Data") or ()
    rows = [mapping(one) for one in (data if isinstance(data, Sequence) else ())]
    return [
        # A bucket ends where the next one begins, and holds its end.
        (nanoseconds(one["Start"], SECOND) + bool(n), nanoseconds(one["End"], SECOND),
         number(one["Count"], "requests"))
        for n, one in enumerate(rows)
    ]  # fmt: skip


def _less(
    rows: Sequence[tuple[int, int, int]], failed: Sequence[tuple[int, int, int]]
) -> list[tuple[int, int, int]]:
    """What is left of buckets without those of failures, as far as these are a part of them."""
    left = list(rows)
    for low, high, count in failed:  # the first and the last bucket end at extremes of their own
        for place, (start, end, whole) in enumerate(left):
            if start <= low + 1 and high <= end and whole >= count:
                left[place] = start, end, whole - count
                break
    return left


def knows_ghz(head: str) -> bool:
    """Whether a file begins like one of ghz."""
    return head.lstrip().startswith("{") and '"fastest"' in head and '"slowest"' in head


def read_ghz(text: str) -> Iterator[Reading]:
    """Its single requests where it has them, or its histogram. Raises `ValueError`."""
    found = mapping(parse_json(text))
    details = [mapping(one) for one in found.get("details") or ()]
    good = [one for one in details if one.get("status", "OK") == "OK" and not one.get("error")]
    statuses = mapping(found.get("statusCodeDistribution") or {})
    if not statuses:
        for one in details:
            status = str(one.get("status") or ("Unknown" if one.get("error") else "OK"))
            statuses = {**statuses, status: statuses.get(status, 0) + 1}
    errors, told = coded(statuses, lambda status: status == "OK")
    fastest = nanoseconds(found["fastest"], 1)
    rows, start = [], fastest
    for one in map(mapping, found.get("histogram") or ()):
        mark = nanoseconds(one["mark"], SECOND)
        rows.append((min(start, mark), mark, number(one["count"], "requests")))
        start = mark + 1
    options = found.get("options")
    asked = mapping(options).get("rps") if isinstance(options, Mapping) else None
    latencies = [nanoseconds(one["latency"], 1) for one in good]
    sent = number(found["count"], "requests") if statuses and "count" in found else len(details)
    doubts = [CLOSED_LOOP]
    if details and sent > len(details):
        text = f"it keeps the first {len(details):,} of its {sent:,} requests: its latencies are of"
        doubts.append(Notice("read-in-part", f"{text} these"))
    average = None if errors else float(found["average"])  # it is of failed requests, too
    yield Reading(
        exact(latencies) if good else bucketed(rows),
        lost=coded(statuses, lambda one: one not in _UNANSWERED)[0] if statuses else None,
        errors=errors if statuses else None,
        requests=max(sent, len(details)) if statuses else None,
        failures=told,
        rate=number(asked, "requests") if asked else None,
        minimum=fastest,
        mean=sum(latencies) / len(latencies) if good else average,
        maximum=nanoseconds(found["slowest"], 1),
        doubts=tuple(doubts),
    )
