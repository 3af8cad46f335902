"""Results of tools that send packets: iperf2, sockperf, TRex, and netperf (`-v 2`, where it was
built with histograms)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tailtap.base.foreign import parse_json
from tailtap.records.record import Notice
from tailtap.results.importers.tools.hdr import decode
from tailtap.results.importers.tools.reading import (
    CLOSED_LOOP,
    MICROSECOND,
    MILLISECOND,
    OPEN,
    SECOND,
    UNITS,
    Reading,
    bucketed,
    exact,
    mapping,
    nanoseconds,
    number,
    share,
    whole_lines,
)

_IPERF = re.compile(
    r"^\[ *(?P<id>[^\]]+)\] (?P<start>[\d.]+)-(?P<end>[\d.]+) sec +"
    r"(?P<what>[^\s(-]*)(?:\(f\))?-PDF: "  # the final line of a connection is marked (f)
    r"bin\(w=(?P<width>[\d.]+)(?P<unit>us|ms|s)\):cnt\((?P<count>\d+)\)=(?P<bins>[\d:,]*)"
    r".*?obl/obu=(?P<below>\d+)/(?P<beyond>\d+)\)",
    re.M,
)
_IPERF_SUMS = re.compile(
    r"^\[ *(?P<id>[^\]]+)\] (?P<start>[\d.]+)-(?P<end>[\d.]+) sec .*?"
    r"(?P<lost>\d+)/ *(?P<sent>\d+) +\([^)]*\) +[\d.]+/(?P<least>-?[\d.]+)/(?P<most>-?[\d.]+)/",
    re.M,
)
"""What is beside the histogram of the same interval: packets lost of all, and times in ms."""
_IPERF_BINS = re.compile(r"bins=(\d+)")
_COLOUR = re.compile(r"\x1b?\[[\d;]*m")
_SOCKPERF_PERCENTILE = re.compile(r"percentile ([\d.]+) = +([\d.]+)")
_SOCKPERF_END = re.compile(r"<?(MIN|MAX)>? observation = +([\d.]+)")
_SOCKPERF_TOTAL = re.compile(r"Total (\d+) observations")
_SOCKPERF_LOST = re.compile(
    r"# dropped messages = (\d+); # duplicated messages = (\d+); # out-of-order messages = (\d+)"
)
_SOCKPERF_ANSWERED = re.compile(r"SentMessages=(\d+); ReceivedMessages=(\d+)")
_SOCKPERF_EVERY = re.compile(r"--reply-every=(\d+)")
_SOCKPERF_ROW = re.compile(r"^\d+, [\d.]+, [\d.]+, ([\d.]+)$", re.M)
_SOCKPERF_RATE = re.compile(r"--mps=(\d+)")
HALF = Notice(
    "half-round-trip",
    "sockperf prints half of each round trip, as if the way back took as long: a packet that was "
    "late on one way counts as half as late",
)


def read_iperf(text: str) -> Iterator[Reading]:
    """The longest interval of each connection and kind of histogram. Raises `ValueError`."""
    longest: dict[tuple[str, str], re.Match[str]] = {}
    for line in _IPERF.finditer(text):
        key = line["id"], line["what"]
        if key not in longest or _seconds(line) >= _seconds(longest[key]):
            longest[key] = line
    sums = {(one["id"], one["start"], one["end"]): one for one in _IPERF_SUMS.finditer(text)}
    bins = _IPERF_BINS.search(text)
    for (connection, what), line in longest.items():
        width = nanoseconds(line["width"], UNITS[line["unit"]])
        pairs = [pair.partition(":") for pair in line["bins"].split(",") if pair]
        rows = [(number(place, "buckets"), number(count, "packets")) for place, _, count in pairs]
        if not width or any(place < 1 for place, _ in rows):
            raise ValueError("its buckets have no width, or no place")
        below, beyond = number(line["below"], "packets"), number(line["beyond"], "packets")
        beside = sums.get((line["id"], line["start"], line["end"]))
        arrived = sum(count for _, count in rows) + below + beyond
        early = below > 0 or (beside is not None and float(beside["least"]) < 0)
        most = nanoseconds(beside["most"], MILLISECOND) if beside and not early else None
        last = max([int(bins[1]) if bins else 0, *(place for place, _ in rows)]) * width
        buckets = [((place - 1) * width, place * width - 1, count) for place, count in rows]
        if beyond:
            buckets.append((last, OPEN if most is None else max(most, last), beyond))
        yield Reading(
            bucketed(() if early else buckets),
            total=arrived,
            lost=number(beside["lost"], "packets") if beside else None,
            requests=None if beside is None else arrived + number(beside["lost"], "packets"),
            maximum=most,
            name=f"{connection.strip()} {what}" if len(longest) > 1 else "",
            doubts=tuple(_iperf_doubts(below, beyond, last, beside if early else None)),
        )


def _iperf_doubts(
    below: int, beyond: int, last: int, early: re.Match[str] | None
) -> Iterator[Notice]:
    """`early` is the line that says by how much packets came before they were sent."""
    if below or early:
        who = f"{below:,} of its packets" if below else "some of its packets"
        by = f", by up to {early['least'].lstrip('-')} ms" if early else ""
        yield Notice(
            "negative-times",
            f"{who} came before they were sent{by}: the clocks differ, and none of its latencies "
            "can be trusted",
        )
    elif beyond:
        yield Notice(
            "beyond-buckets",
            f"{beyond:,} of its packets were later than its last bucket ends, {last / 1e3:,.0f} us",
        )


def _seconds(line: re.Match[str]) -> float:
    return float(line["end"]) - float(line["start"])


def read_sockperf(text: str) -> Iterator[Reading]:
    """Every packet of a full log, or the percentiles that it prints. Raises `ValueError`."""
    text = _COLOUR.sub("", text)
    # What it prints stands in a full log, too.
    shared = (HALF,) if "avg-latency" in text or "Latency is" in text else ()
    rate, gone = _SOCKPERF_RATE.search(text), _SOCKPERF_LOST.search(text)
    lost, twice, out = [number(one, "packets") for one in gone.groups()] if gone else [None] * 3
    # Who sends without waiting asks for few answers, and is stopped by a signal.
    every, answers = _SOCKPERF_EVERY.search(text), _SOCKPERF_ANSWERED.search(text)
    few = answers and int(answers[2]) * 4 < int(answers[1]) * 3
    waits = not few and "interrupted by signal" not in text and (not every or int(every[1]) == 1)
    ends = dict(_SOCKPERF_END.findall(text))
    total = _SOCKPERF_TOTAL.search(text)
    rows = _SOCKPERF_ROW.findall(text)
    if rows and not text.rstrip().endswith("---"):
        shared = (*shared, Notice("read-in-part", "its log has no end: the program was stopped"))
        rows = _SOCKPERF_ROW.findall("\n".join(whole_lines(text)[0]))
    yield Reading(
        exact(nanoseconds(value, MICROSECOND) for value in rows),
        percentiles=[
            (share(percent), nanoseconds(value, MICROSECOND))
            for percent, value in _SOCKPERF_PERCENTILE.findall(text)
        ],
        total=number(total[1], "packets") if total else None,
        lost=lost,
        duplicates=twice,
        reordered=out,
        rate=number(rate[1], "packets") if rate and int(rate[1]) < 1 << 31 else None,
        minimum=nanoseconds(ends["MIN"], MICROSECOND) if "MIN" in ends else None,
        maximum=nanoseconds(ends["MAX"], MICROSECOND) if "MAX" in ends and not rows else None,
        doubts=(*shared, CLOSED_LOOP) if waits else shared,
    )


def read_trex(text: str) -> Iterator[Reading]:
    """A reading for each stream whose latency was measured. Raises `ValueError`."""
    found = parse_json(text)
    streams = found.get("latency") if isinstance(found, Mapping) else None
    if not isinstance(streams, Mapping):
        raise ValueError("it has no latency statistics")
    flows = mapping(found.get("flow_stats") or {})
    for name, stream in streams.items():
        latency = stream.get("latency") if isinstance(stream, Mapping) else None
        if isinstance(latency, Mapping):  # beside the streams stands what is of all of them
            one = _stream(str(name), stream, latency)
            # Packets that nothing came after have no gap in the numbers.
            lost = max(one.lost or 0, _missing(flows.get(name)))
            if one.total or lost:
                yield replace(one, lost=lost if lost else one.lost)


def _missing(flow: object) -> int:
    """The packets of a flow that were sent and did not come."""
    if not isinstance(flow, Mapping):
        return 0
    sent, came = (
        number(mapping(flow.get(side) or {}).get("total", 0), "packets")
        for side in ("tx_pkts", "rx_pkts")
    )
    return max(sent - came, 0)


def _stream(name: str, stream: Mapping[str, object], latency: Mapping[str, object]) -> Reading:
    errors, histogram = stream.get("err_cntrs"), latency.get("histogram")
    rows: list[tuple[int, int, int]] = []
    code = latency.get("hdrh")
    if isinstance(code, str) and code:
        buckets = decode(code)
        low, high = buckets.low * MICROSECOND, (buckets.high + 1) * MICROSECOND - 1
        rows = list(zip(low.tolist(), high.tolist(), buckets.count.tolist(), strict=True))
    elif isinstance(histogram, Mapping):
        rows = [_decade(key, count) for key, count in histogram.items()]
    elif not errors:
        raise ValueError(f"its stream {name[:40]!r} has no histogram")
    maximum = latency.get("total_max")
    counts = mapping(errors or {})
    lost, twice, out = (
        number(counts[one], "packets") if one in counts else None
        for one in ("dropped", "dup", "out_of_order")
    )
    buckets = bucketed(rows)
    return Reading(
        buckets,
        total=int(buckets.count.sum()),
        lost=lost,
        duplicates=twice,
        reordered=out,
        # What it calls an average follows the last packets.
        maximum=nanoseconds(maximum, MICROSECOND) + MICROSECOND - 1 if maximum and rows else None,
        name=name,
    )


def _decade(key: object, count: object) -> tuple[int, int, int]:
    """A bucket of TRex: nine in each decade, named by their lower ends in us; 0 is below 10."""
    low = number(key, "microseconds")
    width = 10 if low < 10 else 10 ** (len(str(low)) - 1)
    return low * MICROSECOND, (low + width) * MICROSECOND - 1, number(count, "packets")


_NETPERF_UNITS = {"NSEC": 1, "USEC": MICROSECOND, "MSEC": MILLISECOND, "SEC": SECOND}
_NETPERF_TIMES = {"UNIT": 1, "TEN": 10, "HUNDRED": 100}
_NETPERF_ROW = re.compile(r"^(UNIT|TEN|HUNDRED)_([NUM]?SEC) *((?:: *\d+){10})", re.M)
_NETPERF_BEYOND = re.compile(r"^(?:>100_SECS|100_PLUS_SEC) *: *(\d+)", re.M)


def read_netperf(text: str) -> Iterator[Reading]:
    """Its histogram. Raises `ValueError`."""
    rows = []
    for times, unit, counts in _NETPERF_ROW.findall(text):
        width = _NETPERF_TIMES[times] * _NETPERF_UNITS[unit]
        for place, count in enumerate(counts.replace(":", " ").split()):
            rows.append((place * width, (place + 1) * width - 1, number(count, "transactions")))
    if (beyond := _NETPERF_BEYOND.search(text)) is None:
        raise ValueError("its histogram has no end")
    rows.append((100 * SECOND, OPEN, number(beyond[1], "transactions")))
    yield Reading(bucketed(rows), doubts=(CLOSED_LOOP,))
