"""Logs of HdrHistogram, version 2."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

import numpy as np

from tailtap.analysis.runs.run import Run
from tailtap.base.check import Check
from tailtap.results.exporters.base import write_text
from tailtap.results.exporters.hgrm import distribution_of
from tailtap.results.importers.tools.hdr import encode
from tailtap.results.importers.tools.hlog import NANOSECONDS

MILLISECOND_NS = 1_000_000
LEGEND = '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"'


class Hlog:
    """One file a run, `SLUG.hlog`, with one interval; values in ns, maxima in ms."""

    summary = "HdrHistogram's logs (version 2), in nanoseconds: one file for each run."
    documentation = (
        "For programs that read or add up histograms. Each log has one interval, the whole run. "
        "Its histogram has five significant digits: a latency is kept to 0.001 %."
    )
    address = False
    holds_packets = False

    def diagnose(self) -> Iterator[Check]:
        """It is a part of tailtap."""
        yield Check("exporters", "hlog", "ok", "needs nothing of its own")

    def export(self, runs: Sequence[Run], destination: str, *, packets: bool = False) -> list[str]:
        """Write a file for each run into the folder `destination`."""
        return [write_text(Path(destination), f"{run.slug}.hlog", log(run)) for run in runs]


def log(run: Run) -> str:
    """The log of a run."""
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
