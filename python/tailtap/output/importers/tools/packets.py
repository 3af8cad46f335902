"""Results of tools that send packets: iperf2, sockperf and TRex."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from tailtap.output.importers.tools.hdr import decode
from tailtap.output.importers.tools.reading import (
    CLOSED_LOOP,
    MICROSECOND,
    SECOND,
    Reading,
    bucketed,
    exact,
    nanoseconds,
    number,
    share,
)
from tailtap.records.foreign import parse_json
from tailtap.records.record import Notice

_IPERF = re.compile(
    r"^\[ *(?P<id>[^\]]+)\] (?P<start>[\d.]+)-(?P<end>[\d.]+) sec +"
    r"(?P<what>[^\s(-]*)(?:\(f\))?-PDF: "  # the final line of a connection is marked (f)
    r"bin\(w=(?P<width>[\d.]+)(?P<unit>us|ms|s)\):cnt\((?P<count>\d+)\)=(?P<bins>[\d:,]*)"
    r".*?obl/obu=(?P<below>\d+)/(?P<beyond>\d+)",
    re.M,
)
_UNITS = {"us": MICROSECOND, "ms": 1000 * MICROSECOND, "s": SECOND}
_COLOUR = re.compile(r"\x1b?\[[\d;]*m")
_SOCKPERF_PERCENTILE = re.compile(r"percentile ([\d.]+) = +([\d.]+)")
_SOCKPERF_END = re.compile(r"<(MIN|MAX)> observation = +([\d.]+)")
_SOCKPERF_TOTAL = re.compile(r"Total (\d+) observations")
_SOCKPERF_DROPPED = re.compile(r"# dropped messages = (\d+)")
_SOCKPERF_ROW = re.compile(r"^\d+, [\d.]+, [\d.]+, ([\d.]+)$", re.M)
_SOCKPERF_RATE = re.compile(r"--mps=(\d+)")
HALF = Notice(
    "half-round-trip",
    "sockperf prints half of each round trip, as if the way back took as long: a packet that was "
    "late on one way counts as half as late",
)


def knows_iperf(head: str) -> bool:
    """Whether a file begins like one of iperf2's with histograms."""
    return "-PDF: bin(w=" in head or ("Server listening on" in head and "histograms bin-" in head)


def read_iperf(text: str) -> Iterator[Reading]:
    """The longest interval of each connection and kind of histogram. Raises `ValueError`."""
    longest: dict[tuple[str, str], re.Match[str]] = {}
    for line in _IPERF.finditer(text):
        key = line["id"], line["what"]
        if key not in longest or _seconds(line) >= _seconds(longest[key]):
            longest[key] = line
    for (connection, what), line in longest.items():
        width = nanoseconds(line["width"], _UNITS[line["unit"]])
        pairs = [pair.partition(":") for pair in line["bins"].split(",") if pair]
        rows = [(number(place, "buckets"), number(count, "packets")) for place, _, count in pairs]
        if not width or any(place < 1 for place, _ in rows):
            raise ValueError("its buckets have no width, or no place")
        beyond = number(line["beyond"], "packets")
        told = (
            f"{beyond:,} of its packets were later than its last bucket ends: they count as in it"
        )
        yield Reading(
            bucketed([((place - 1) * width, place * width - 1, count) for place, count in rows]),
            name=f"{connection.strip()} {what}" if len(longest) > 1 else "",
            doubts=(Notice("beyond-buckets", told),) if beyond else (),
        )


def _seconds(line: re.Match[str]) -> float:
    return float(line["end"]) - float(line["start"])


def knows_sockperf(head: str) -> bool:
    """Whether a file begins like one of sockperf, what it prints or its full log."""
    return "sockperf: " in head and ("observation" in head or "version #" in head)


def read_sockperf(text: str) -> Iterator[Reading]:
    """Every packet of a full log, or the percentiles that it prints. Raises `ValueError`."""
    text = _COLOUR.sub("", text)
    # What it prints stands in a full log, too.
    shared = (HALF,) if "avg-latency" in text or "Latency is" in text else ()
    ping = "--ping-pong" in text or "Round trip" in text or "pingpong" in text
    doubts = (*shared, CLOSED_LOOP) if ping and "--mps=" not in text else shared
    rate, lost = _SOCKPERF_RATE.search(text), _SOCKPERF_DROPPED.search(text)
    ends = dict(_SOCKPERF_END.findall(text))
    total = _SOCKPERF_TOTAL.search(text)
    rows = _SOCKPERF_ROW.findall(text)
    yield Reading(
        exact(nanoseconds(value, MICROSECOND) for value in rows),
        percentiles=[
            (share(percent), nanoseconds(value, MICROSECOND))
            for percent, value in _SOCKPERF_PERCENTILE.findall(text)
        ],
        total=number(total[1], "packets") if total else None,
        lost=number(lost[1], "packets") if lost else None,
        rate=number(rate[1], "packets") if rate and int(rate[1]) < 1 << 31 else None,
        minimum=nanoseconds(ends["MIN"], MICROSECOND) if "MIN" in ends else None,
        maximum=nanoseconds(ends["MAX"], MICROSECOND) if "MAX" in ends and not rows else None,
        doubts=doubts,
    )


def knows_trex(head: str) -> bool:
    """Whether a file begins like statistics of TRex."""
    return (
        head.lstrip().startswith("{")
        and '"latency"' in head
        and ('"histogram"' in head or '"hdrh"' in head or '"err_cntrs"' in head)
    )


def read_trex(text: str) -> Iterator[Reading]:
    """A reading for each stream whose latency was measured. Raises `ValueError`."""
    found = parse_json(text)
    streams = found.get("latency") if isinstance(found, Mapping) else None
    if not isinstance(streams, Mapping):
        raise ValueError("it has no latency statistics")
    for name, stream in streams.items():
        latency = stream.get("latency") if isinstance(stream, Mapping) else None
        if isinstance(latency, Mapping):  # beside the streams stands what is of all of them
            yield _stream(str(name), stream, latency)


def _stream(name: str, stream: Mapping[str, object], latency: Mapping[str, object]) -> Reading:
    errors, histogram = stream.get("err_cntrs"), latency.get("histogram")
    code = latency.get("hdrh")
    if isinstance(code, str) and code:
        buckets = decode(code)
        low, high = buckets.low * MICROSECOND, (buckets.high + 1) * MICROSECOND - 1
        rows = list(zip(low.tolist(), high.tolist(), buckets.count.tolist(), strict=True))
    elif isinstance(histogram, Mapping):
        rows = [_decade(key, count) for key, count in histogram.items()]
    else:
        raise ValueError(f"its stream {name[:40]!r} has no histogram")
    maximum, average = latency.get("total_max"), latency.get("average")
    return Reading(
        bucketed(rows),
        lost=number(errors.get("dropped", 0), "packets") if isinstance(errors, Mapping) else None,
        mean=None if average is None else float(nanoseconds(average, MICROSECOND)),
        maximum=None if maximum is None else nanoseconds(maximum, MICROSECOND) + MICROSECOND - 1,
        name=name,
    )


def _decade(key: object, count: object) -> tuple[int, int, int]:
    """A bucket of TRex: nine in each decade, named by their lower ends in us; 0 is below 10."""
    low = number(key, "microseconds")
    width = 10 if low < 10 else 10 ** (len(str(low)) - 1)
    return low * MICROSECOND, (low + width) * MICROSECOND - 1, number(count, "packets")
