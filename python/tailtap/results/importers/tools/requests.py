"""Load generators for HTTP and gRPC: fortio, ghz, vegeta, k6, hey, oha, wrk and wrk2."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tailtap.base.foreign import parse_json
from tailtap.records.record import Notice
from tailtap.results.importers.published import MOST_RATE
from tailtap.results.importers.tools.histograms import spectrum
from tailtap.results.importers.tools.reading import (
    CLOSED_LOOP,
    FAILURES_UNTOLD,
    MILLISECOND,
    SECOND,
    UNITS,
    Reading,
    answered,
    bucketed,
    coded,
    exact,
    mapping,
    nanoseconds,
    number,
    per_request,
    share,
    whole_lines,
)

_ATTACK = '{"attack":'
_DURATION = "http_req_duration"
_GOOD = f"{_DURATION}{{expected_response:true}}"
_CSV = "response-time,DNS+dialup,"
STEP = SECOND // 10_000
"""What the times of hey's CSV are rounded to."""
CUT = "aborted due to deadline"
"""What oha says of requests that were on their way when its time was over."""
_TIME = r"([\d.]+) ?(secs|sec|ms|us|ns|s)\b"
_PRINTED = re.compile(rf"^ *([\d.]+)%+ in {_TIME}", re.M)
_END = re.compile(rf"^ *(Slowest|Fastest|Average):\s+{_TIME}", re.M)
_CODE = re.compile(r"^ *\[(\d{3})\]\s+(\d+) responses", re.M)
_ERROR = re.compile(rf"^ *\[(\d+)\]\s+(?!\d+ responses|{CUT})\S", re.M)
_PERCENTILE = re.compile(r"p?\(?([\d.]+)(?:th|\))?")


def read_vegeta(text: str) -> Iterator[Reading]:
    """Its requests, its spectrum or its percentiles. Raises `ValueError`."""
    if text.startswith(_ATTACK):
        lines, doubts = whole_lines(text)
        rows = map(mapping, map(parse_json, lines))
        pairs = ((str(one["code"]), nanoseconds(one["latency"], 1)) for one in rows)
        yield per_request(pairs, doubts=doubts)
    elif text.lstrip().startswith("{"):
        found = mapping(parse_json(text))
        codes, times = mapping(found["status_codes"]), mapping(found["latencies"])
        yield _summary(times, 1, codes, number(codes.get("0", 0), "requests"), mixed=True)
    else:
        yield spectrum(text, MILLISECOND, doubts=(FAILURES_UNTOLD,))


def read_k6(text: str) -> Iterator[Reading]:
    """The durations of requests: of expected answers, where k6 tells them. Raises `ValueError`."""
    if '"metrics"' not in text:
        lines, doubts = whole_lines(text)
        points = (mapping(parse_json(line)) for line in lines if f'"{_DURATION}"' in line)
        yield per_request(
            map(_point, (mapping(one["data"]) for one in points if one.get("type") == "Point")),
            doubts=(CLOSED_LOOP, *doubts),
        )
        return
    metrics = mapping(mapping(parse_json(text))["metrics"])
    found = {name: mapping(mapping(one).get("values", one)) for name, one in metrics.items()}
    values = dict(found.get(_GOOD) or found[_DURATION])
    values["p50"], values["mean"] = values.get("med"), values.get("avg")
    sent = number(found["http_reqs"]["count"], "requests")
    failed = number(found.get("http_req_failed", {}).get("passes", 0), "requests")
    codes = {"200": sent - failed, "failed": failed}
    # Its executors at a rate do not wait, and a summary does not say which one it was.
    yield _summary(values, MILLISECOND, codes, None, mixed=_GOOD not in found, waits=True)


def _point(data: Mapping[str, object]) -> tuple[str, int]:
    tags = mapping(data["tags"])
    expected = tags.get("expected_response") != "false"
    return "200" if expected else str(tags.get("status")), nanoseconds(data["value"], MILLISECOND)


def read_hey(text: str) -> Iterator[Reading]:
    """Its requests, or its percentiles. Raises `ValueError`."""
    if text.startswith(_CSV):
        lines, doubts = whole_lines(text)
        titles, *rows = (line.split(",") for line in lines)
        code = titles.index("status-code")
        pairs = ((one[code], nanoseconds(one[0], SECOND)) for one in rows)
        yield per_request(pairs, STEP, (CLOSED_LOOP, *doubts))
        return
    if text.lstrip().startswith("{"):
        found = mapping(parse_json(text))
        apart, codes = found.get("latencyPercentilesSuccessful"), found["statusCodeDistribution"]
        cut = coded(mapping(found.get("errorDistribution") or {}), lambda one: one == CUT)[0]
        told = mapping(found["summary"])
        ends = {"min": told["fastest"], "mean": told["average"], "max": told["slowest"]}
        values = {**mapping(apart or found["latencyPercentiles"]), **({} if apart else ends)}
    else:
        apart, codes = None, dict(_CODE.findall(text))
        cut = sum(number(count, "requests") for count in _ERROR.findall(text))
        printed = [(f"p{p}", time, unit) for p, time, unit in _PRINTED.findall(text)]
        names = {"Fastest": "min", "Average": "mean", "Slowest": "max"}
        printed += [(names[name], time, unit) for name, time, unit in _END.findall(text)]
        values = {name: float(time) * UNITS[unit] / SECOND for name, time, unit in printed}
    every = {**mapping(codes), "0": cut}
    yield _summary(values, SECOND, every, cut, mixed=not apart, timed=False, waits=True)


def _summary(
    values: Mapping[str, object],
    unit: int,
    codes: Mapping[str, object],
    lost: int | None,
    *,
    mixed: bool,
    timed: bool = True,
    waits: bool = False,
) -> Reading:
    """Percentiles of all answers (`mixed`) or of good ones; what is `lost` is `timed` or not."""
    errors, told = coded(codes, answered)
    sent = coded(codes, lambda _: False)[0]
    among = errors - (0 if timed else lost or 0) if mixed else 0
    ends = {
        name: None if values.get(name) is None else nanoseconds(values[name], unit)
        for name in ("min", "mean", "max")
    }
    return Reading(
        percentiles=[
            (share(match[1]), nanoseconds(value, unit))
            for name, value in values.items()
            if value is not None and (match := _PERCENTILE.fullmatch(name))
        ],
        total=sent - errors + among,
        lost=lost,
        errors=errors,
        among=among,
        requests=sent,
        failures=told,
        minimum=ends["min"],
        mean=None if ends["mean"] is None else float(ends["mean"]),
        maximum=ends["max"],
        doubts=(CLOSED_LOOP,) if waits else (),
    )


_WRK_SECTION = re.compile(
    r"Latency Distribution \(HdrHistogram - (?P<name>[^)]*?) ?Latency[^)]*\)(?P<body>.*?)"
    r"(?=Latency Distribution|\Z)",
    re.S,
)
_WRK_PERCENTILE = re.compile(r"^\s*([\d.]+)%\s+([\d.]+)(us|ms|s|m|h)\s*$", re.M)
_WRK_TOTAL = re.compile(r"^\s*(\d+) requests in ", re.M)
_WRK_REFUSED = re.compile(r"Non-2xx or 3xx responses: (\d+)")
_WRK_SOCKETS = re.compile(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)")


def read_wrk(text: str) -> Iterator[Reading]:
    """The corrected latencies of wrk2, then the others; or those of wrk. Raises `ValueError`."""
    done = number(found[1], "requests") if (found := _WRK_TOTAL.search(text)) else None
    refused = number(bad[1], "requests") if (bad := _WRK_REFUSED.search(text)) else 0
    told = _WRK_SOCKETS.search(text)
    *broken, late = [number(one, "errors") for one in told.groups()] if told else [0] * 4
    requests = None if done is None else done + sum(broken)
    failures = Reading(
        # One that was late may be one that was refused, too.
        errors=None if requests is None else min(refused + sum(broken) + late, requests),
        requests=requests,
        failures=f"{refused:,} no 2xx or 3xx, {sum(broken):,} socket errors, {late:,} timeouts",
    )
    sections = list(_WRK_SECTION.finditer(text))
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
                for percent, value, unit in _WRK_PERCENTILE.findall(text)
            ],
            total=timed,
            among=min(refused, timed or 0),
            doubts=(CLOSED_LOOP,),
        )


_FINE = frozenset(("OK", "SERVING", "418"))
"""What fortio calls good besides HTTP's 2xx; TCP and UDP have OK, gRPC's health SERVING."""
_UNANSWERED = frozenset(("Unavailable", "DeadlineExceeded", "Canceled"))
"""Statuses of gRPC that a client gives where no answer came."""


def read_fortio(text: str) -> Iterator[Reading]:
    """Its histogram of durations, less that of failures. Raises `ValueError`."""
    found = mapping(parse_json(text))
    histogram = mapping(found.get("DurationHistogram"))
    rows = _durations(histogram)
    failed = mapping(found.get("ErrorsDurationHistogram") or {})
    codes = mapping(found.get("RetCodes") or {})
    errors, told = coded(codes, lambda code: code in _FINE or (code[:1] == "2" and len(code) == 3))
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
