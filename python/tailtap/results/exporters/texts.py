"""Texts of others: HdrHistogram's percentiles and logs, and what github-action-benchmark keeps."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from statistics import median_high
from typing import Any, TextIO

import numpy as np

from tailtap.analysis.evaluation.values import DEFAULT, Pair, label, summed
from tailtap.analysis.runs.groups import group, label_parts
from tailtap.analysis.runs.run import Run
from tailtap.base.errors import InputError
from tailtap.results.exporters.base import Common, OneFile, write_text
from tailtap.results.importers.tools.hdr import encode
from tailtap.results.importers.tools.histograms import NANOSECONDS

#: Reporting points in each half of the distance to 100 %: HdrHistogram's default.
TICKS = 5
#: Nanoseconds in the unit of the values: they are written in microseconds.
SCALE = 1000
MILLISECOND_NS = 1_000_000
LEGEND = '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"'


class Hgrm(OneFile):
    """One file a run, `SLUG.hgrm`, values in microseconds (HdrHistogram's scaling of 1000)."""

    summary = "HdrHistogram's percentile text, in microseconds: one file for each run."
    documentation = "For programs that draw HDR diagrams. The percentiles are exact."
    name = "hgrm"

    def text(self, run: Run) -> str:
        """Its percentiles."""
        text = io.StringIO()
        write_distribution(text, distribution_of(run))
        return text.getvalue()


def distribution_of(run: Run) -> Pair:
    """The distribution of a finished run.

    Where others told percentiles alone, packets between two of them count as late as the upper
    one. Raises `InputError` where these do not reach the last packet.
    """
    if run.evaluation is None:
        raise InputError(run.failure)
    found = run.evaluation
    if found.distribution[0].size:
        return found.distribution
    rows = [(row.value, row.above) for row in found.curve]
    if found.max is not None:
        rows.append((found.max, 0))
    if found.packets is None or not rows or rows[-1][1]:
        raise InputError("its distribution is not stored: export csv").at(run.slug)
    values, above = np.array(rows, np.int64).T
    reached = np.diff(found.packets - above, prepend=0)
    known, counts = summed(np.maximum.accumulate(values), reached)
    return known[counts > 0], counts[counts > 0]


def write_distribution(file: TextIO, distribution: Pair) -> None:
    """Write a distribution of nanoseconds as HdrHistogram's `outputPercentileDistribution` does.

    The layout is that of its Java version: columns of 12, 14, 10 and 14 characters, a last row of
    100 % without 1/(1-p), and three lines of summary. Values are exact: three decimals of a
    microsecond are nanoseconds. The last line describes a distribution without rounding: a single
    bucket whose sub-buckets are a nanosecond wide and reach the maximum.
    """
    values, counts = distribution
    total = int(counts.sum())
    mean = float(np.average(values, weights=counts))
    deviation = math.sqrt(float(np.average((values - mean) ** 2, weights=counts)))
    file.write(f"{'Value':>12} {'Percentile':>14} {'TotalCount':>10} {'1/(1-Percentile)':>14}\n\n")
    for value, level, reached in percentile_rows(distribution):
        row = f"{value / SCALE:12.3f} {level / 100:.12f} {reached:10d}"
        file.write(f"{row} {1 / (1 - level / 100):14.2f}\n" if level < 100 else f"{row}\n")
    largest = int(values[-1])
    file.write(
        f"#[Mean    = {mean / SCALE:12.3f}, StdDeviation   = {deviation / SCALE:12.3f}]\n"
        f"#[Max     = {largest / SCALE:12.3f}, Total count    = {total:12d}]\n"
        f"#[Buckets = {1:12d}, SubBuckets     = {1 << max(largest.bit_length(), 1):12d}]\n"
    )


def percentile_rows(distribution: Pair) -> Iterator[tuple[int, float, int]]:
    """Value (ns), percentile (0 to 100) and how many packets were no slower, row by row.

    HdrHistogram's percentile iteration: the levels halve their distance each time that the way to
    100 % is halved, and end with the first that reaches all packets; one row of 100 % follows.
    """
    values, counts = distribution
    below = np.cumsum(counts)
    total = int(below[-1])
    shares = 100.0 * below / total
    level, reached = 0.0, 0
    while reached < total and level < 100:
        place = int(np.searchsorted(shares, level))
        reached = int(below[place])
        yield int(values[place]), level, reached
        halvings = math.floor(math.log2(100 / (100 - level))) + 1
        level += 100 / (TICKS * 2**halvings)
    yield int(values[-1]), 100.0, total


class Hlog(OneFile):
    """One file a run, `SLUG.hlog`, with one interval; values in ns, maxima in ms."""

    summary = "HdrHistogram's logs (version 2), in nanoseconds: one file for each run."
    documentation = (
        "For programs that read or add up histograms. Each log has one interval, the whole "
        "run, and five significant digits."
    )
    name = "hlog"

    def text(self, run: Run) -> str:
        """Its log."""
        values, counts = distribution_of(run)
        duration = run.evaluation.duration if run.evaluation else 0.0
        start = run.record.started if run.record else None
        lines = ["#[Histogram log format version 1.3]", NANOSECONDS]
        if start:
            seconds = datetime.fromisoformat(start).timestamp()
            lines.append(f"#[StartTime: {seconds:.3f} (seconds since epoch), {start}]")
        # Two clocks may make a latency negative; no histogram of this kind holds that.
        code = encode(np.maximum(values, 0), counts)
        lines += [
            LEGEND,
            f"0.000,{duration:.3f},{int(values[-1]) / MILLISECOND_NS:.3f},{code}",
        ]
        return "\n".join(lines) + "\n"


BENCHMARK = "benchmark.json"


class Benchmark(Common):
    """One file, `benchmark.json`, for its tool `customSmallerIsBetter`."""

    summary = "What github-action-benchmark keeps: the percentiles of each configuration."
    documentation = (
        "One file for `tool: customSmallerIsBetter`. A value is the median of a "
        "configuration's valid repeats in ns, and its range reaches from the lowest to the "
        "highest of them. Percentiles are listed that every repeat has ten packets above."
    )
    name = "github-action-benchmark"

    def export(self, runs: Sequence[Run], destination: str, *, packets: bool = False) -> list[str]:
        """Write the file into the folder `destination`."""
        text = json.dumps(list(benchmark_rows(runs)), indent=1) + "\n"
        return [write_text(Path(destination), BENCHMARK, text)]


def benchmark_rows(runs: Sequence[Run]) -> Iterator[dict[str, Any]]:
    """The values of all configurations."""
    good = [run for run in runs if not run.excluded]
    for members in group(good, lambda run: (sorted(run.variables.items()), run.rate)):
        first = members[0]
        name = " · ".join(label_parts(first)) or first.experiment
        for p in DEFAULT:
            found = [row for run in members if (row := run.percentile(p)) and row.supported]
            if len(found) < len(members) or any(run.gone > 1 - p for run in members):
                break
            values = [row.value for row in found]
            yield {
                "name": f"{first.experiment}: {name}, {label(p)}",
                "unit": "ns",
                "value": median_high(values),
                "range": f"{min(values)} to {max(values)}",
                "extra": f"{len(values)} runs",
            }
