"""What MoonGen leaves in a result tree: histograms of latencies, and logs of packets per second."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from tailtap.analysis.evaluation import tables
from tailtap.analysis.evaluation.partial import Partial
from tailtap.analysis.evaluation.values import (
    DEFAULT,
    Column,
    Pair,
    papers,
    percentiles_of,
    require_counts,
    summed,
)
from tailtap.base.errors import InputError
from tailtap.base.units import FRAMING
from tailtap.records.record import Extremes

HISTOGRAM = re.compile(r"hist[^/]*_run\d+\.csv")
THROUGHPUT = re.compile(r"throughput[^/]*_run\d+\.log")
#: The width of the buckets of histograms that are made here.
BUCKET_NS = 100
SECOND_NS = 1_000_000_000
#: A log has a line for each second of a run: half a year is the most.
MOST_SECONDS = 10_000_000
LONGEST_LINE = 1000
#: The last lines of a log, one a device and direction; terminals get them in colours.
_TOTAL = re.compile(r"(?P<direction>RX|TX)[^:]*: .*\btotal (?P<packets>\d{1,15}) packets")


def read_histogram(content: bytes) -> Pair:
    """Latencies in ns, ascending, and how often each occurred: `latency,count` in each line.

    Raises `ValueError` when it is damaged.
    """
    rows: list[tuple[int, int]] = []
    for number, line in enumerate(content.decode().splitlines(), 1):
        cells = re.fullmatch(r"\s*(\d{1,18})\s*,\s*(\d{1,15})\s*", line)
        if cells is None:
            raise ValueError(f"line {number} is not 'latency,count' in whole ns: {line[:40]!r}")
        rows.append((int(cells[1]), int(cells[2])))
    # At most 64 MB of lines of 15 digits: they add up to less than 2^63.
    if not rows:
        raise ValueError("it holds no latencies")
    values, counts = summed(*np.array(rows, np.int64).T)
    require_counts(counts)
    kept = counts > 0
    if not kept.any():
        raise ValueError("it holds no packets")
    return values[kept], counts[kept]


def partial_of(pair: Pair) -> Partial:
    """Exact statistics of a histogram; when packets were late it does not know."""
    values, counts = pair
    packets = int(counts.sum())
    histogram = tables.histogram(pair, BUCKET_NS)
    found = {
        "percentiles": tables.percentiles(percentiles_of(pair, sorted({*papers(), *DEFAULT}))),
        "distribution": tables.table("distribution", *pair),
        "histogram": tables.table("histogram", histogram.edges, histogram.counts),
    }
    mean = float((values.astype(float) * counts).sum() / packets)
    latency = Extremes(min=int(values[0]), mean=mean, max=int(values[-1]))
    return Partial.of("unknown", {"matched": packets}, found, latency, BUCKET_NS)


def with_totals(found: Partial | None, totals: Mapping[str, int]) -> Partial:
    """The same with the counts of a log, of which it knows none."""
    if found is None:
        return Partial.of("unknown", totals, {}, Extremes())
    record = found.record
    counts = {**totals, **record.counts}
    return Partial.of(record.key, counts, found.tables, record.latency_ns, record.bucket_ns)


def read_totals(content: bytes) -> dict[str, int]:
    """All packets that left the load generator and came back, as counts of an evaluation.

    Raises `ValueError` when the log ends before its last lines, or they are too many.
    """
    totals = {"TX": 0, "RX": 0}
    seen = set()
    for line in content.decode(errors="replace").splitlines():
        # What is longer is no line of MoonGen's, and takes the square of its length to search.
        found = _TOTAL.search(line) if len(line) <= LONGEST_LINE else None
        if found:
            totals[found["direction"]] += int(found["packets"])
            seen.add(found["direction"])
    if seen != {"TX", "RX"}:
        raise ValueError("it has no totals of sent and received packets at its end")
    require_counts([*totals.values()])
    sent, received = totals["TX"], totals["RX"]
    return {"ingress": sent, "egress": received, "lost": max(sent - received, 0)}


def histogram_text(pair: Pair) -> str:
    """What `read_histogram` reads, and plot scripts for MoonGen's histograms do."""
    rows = zip(pair[0].tolist(), pair[1].tolist(), strict=True)
    return "".join(f"{latency},{count}\n" for latency, count in rows)


def throughput_text(seconds: Mapping[str, Pair], size: int) -> str:
    """A log of packets per second, as plot scripts read MoonGen's.

    `seconds` has for `TX` and `RX` the start of each second in ns and its packets; `size` is that
    of a frame in bytes, its check sequence included.
    """
    lines = ["tailtap: packets at the taps before (TX) and after the device (RX), each second"]
    totals = []
    for device, (direction, pair) in enumerate(seconds.items()):
        packets = _every_second(*pair)
        name = f"[Device: id={device}] {direction}:"
        lines += [
            f"{name} {count / 1e6:.6f} Mpps, {_mbit(count, size):.2f} Mbit/s "
            f"({_mbit(count, size + FRAMING):.2f} Mbit/s with framing)"
            for count in packets.tolist()
        ]
        mean, spread = float(packets.mean()), float(packets.std())
        totals.append(
            f"{name} {mean / 1e6:.6f} (StdDev {spread / 1e6:.6f}) Mpps, "
            f"{_mbit(mean, size):.2f} (StdDev {_mbit(spread, size):.0f}) Mbit/s "
            f"({_mbit(mean, size + FRAMING):.2f} Mbit/s with framing), total "
            f"{packets.sum()} packets with {packets.sum() * size} bytes (incl. CRC)"
        )
    return "\n".join([*lines, *totals]) + "\n"


def _every_second(starts: Column, packets: Column) -> Column:
    """The packets of each second, those without any included. Raises `InputError`."""
    if not packets.size:
        return np.zeros(1, np.int64)
    places = (starts - starts[0]) // SECOND_NS
    if places.min() < 0 or places.max() >= MOST_SECONDS:
        raise InputError(
            f"its packets are {places.min()} s to {places.max()} s apart: these are no rates of "
            "one run; run tailtap evaluate --out again"
        )
    found = np.zeros(int(places.max()) + 1, np.int64)
    found[places] = packets
    return found


def _mbit(packets: float, size: int) -> float:
    return packets * size * 8 / 1e6
