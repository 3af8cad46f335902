"""What wrk2 prints with --latency, and wrk: a spectrum of HdrHistogram, or a few percentiles."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from tailtap.results.importers.tools.hgrm import spectrum
from tailtap.results.importers.tools.reading import (
    CLOSED_LOOP,
    MILLISECOND,
    UNITS,
    Reading,
    nanoseconds,
    number,
    share,
)

_SECTION = re.compile(
    r"Latency Distribution \(HdrHistogram - (?P<name>[^)]*?) ?Latency[^)]*\)(?P<body>.*?)"
    r"(?=Latency Distribution|\Z)",
    re.S,
)
_PERCENTILE = re.compile(r"^\s*([\d.]+)%\s+([\d.]+)(us|ms|s|m|h)\s*$", re.M)
_TOTAL = re.compile(r"^\s*(\d+) requests in ", re.M)
_REFUSED = re.compile(r"Non-2xx or 3xx responses: (\d+)")
_SOCKETS = re.compile(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)")


def knows(head: str) -> bool:
    """Whether a file begins like one."""
    return "Running " in head and "Thread Stats" in head


def read(text: str) -> Iterator[Reading]:
    """The corrected latencies of wrk2, then the others; or those of wrk. Raises `ValueError`."""
    done = number(found[1], "requests") if (found := _TOTAL.search(text)) else None
    refused = number(bad[1], "requests") if (bad := _REFUSED.search(text)) else 0
    told = _SOCKETS.search(text)
    *broken, late = [number(one, "errors") for one in told.groups()] if told else [0] * 4
    requests = None if done is None else done + sum(broken)
    failures = Reading(
        # One that was late may be one that was refused, too.
        errors=None if requests is None else min(refused + sum(broken) + late, requests),
        requests=requests,
        failures=f"{refused:,} no 2xx or 3xx, {sum(broken):,} socket errors, {late:,} timeouts",
    )
    sections = list(_SECTION.finditer(text))
    for section in sections:
        uncorrected = "Uncorrected" in section["name"] or "without taking" in section[0][:200]
        of = spectrum(section["body"], MILLISECOND)
        # Its latencies begin after a calibration, and nothing says how many failed before.
        total = int(of.buckets.count.sum())
        yield replace(
            failures,
            buckets=of.buckets,
            mean=of.mean,
            maximum=of.maximum,
            requests=None if requests is None else max(requests, total),
            among=min(refused + late, total),
            name="uncorrected" if uncorrected else "",
            doubts=(CLOSED_LOOP,) if uncorrected else (),
        )
    if not sections:  # a request that takes longer than the timeout has no latency
        timed = None if done is None else max(done - late, 0)
        yield replace(
            failures,
            percentiles=[
                (share(percent), nanoseconds(value, UNITS[unit]))
                for percent, value, unit in _PERCENTILE.findall(text)
            ],
            total=timed,
            among=min(refused, timed or 0),
            doubts=(CLOSED_LOOP,),
        )
