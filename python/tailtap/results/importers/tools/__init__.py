"""Results of other tools as runs: a row for each in `TOOLS`, told apart by how files begin.

A row reads a text into `Reading`s, whatever is wrong being a `ValueError`. `runs` makes of them
what an import puts into the database, with the doubts that their form brings as warnings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tailtap.results.importers.tools import (
    histograms,
    packets,
    realtime,
    requests,
)
from tailtap.results.importers.tools.reading import Reading

__all__ = ["TOOLS", "Tool", "tool_of"]


@dataclass(frozen=True)
class Tool:
    """A tool: what its files are told by, and their measurements."""

    read: Callable[..., Iterator[Reading]]
    signs: tuple[tuple[str, ...], ...]
    """Expressions that all stand in the first characters of a file, in any of these ways."""
    unit: bool = False
    """Whether its files do not say their unit: `read` is then told one, in ns."""

    def knows(self, head: str) -> bool:
        """Whether a file that begins like this is of it."""
        return any(all(re.search(sign, head) for sign in way) for way in self.signs)

    def readings(self, text: str, unit: int | None = None) -> Iterator[Reading]:
        """What a file says. Raises `ValueError`."""
        return self.read(text, unit) if self.unit else self.read(text)


JSON = r"\A\s*\{"
TOOLS: Mapping[str, Tool] = {
    "HdrHistogram log": Tool(
        histograms.read_hlog,
        ((r"\[Histogram log format version",), *((mark,) for mark in histograms.MARKS)),
        unit=True,
    ),
    "wrk2": Tool(requests.read_wrk, (("Running ", "Thread Stats"),)),
    "HdrHistogram percentiles": Tool(
        histograms.read_hgrm,
        ((r"\A\s*Value +Percentile +TotalCount +1/\(1-Percentile\)",),),
        unit=True,
    ),
    "fortio": Tool(requests.read_fortio, ((JSON, '"RunType"', '"RequestedQPS"'),)),
    "vegeta": Tool(
        requests.read_vegeta,
        (
            ('"latencies"', '"status_codes"'),
            (r'\A\{"attack":',),
            (r"\A\s*Value\(ms\) +Percentile",),
        ),
    ),
    "k6": Tool(requests.read_k6, ((JSON, '"http_req_duration'),)),
    "hey or oha": Tool(
        requests.read_hey,
        (
            ("Slowest:", "Requests/sec:"),
            (r"\Aresponse-time,DNS\+dialup,",),
            ('"latencyPercentiles"',),
        ),
    ),
    "ghz": Tool(requests.read_ghz, ((JSON, '"fastest"', '"slowest"'),)),
    "iperf2": Tool(
        packets.read_iperf,
        ((r"-PDF: bin\(w=",), ("Server listening on", "histograms bin-")),
    ),
    "sockperf": Tool(packets.read_sockperf, (("sockperf: ", "observation|version #"),)),
    "netperf": Tool(
        packets.read_netperf, ((r"(?m)^(?:UNIT|TEN|HUNDRED)_[NUM]?SEC *(?:: *\d+){10}",),)
    ),
    "TRex": Tool(packets.read_trex, ((JSON, '"latency"', '"(?:histogram|hdrh|err_cntrs)"'),)),
    "cyclictest": Tool(
        realtime.read_cyclictest,
        (
            (r"\A# /dev/cpu_dma_latency",),
            (r"(?m)^# Histogram\n",),
            ('"rt_test_version', '["/]cyclictest'),
        ),
    ),
    "rtla": Tool(realtime.read_rtla, (("# RTLA ", " histogram"),)),
}


def tool_of(head: str) -> str | None:
    """The tool that a file is of, by how it begins; of JSON, by all of it."""
    return next((name for name, tool in TOOLS.items() if tool.knows(head)), None)
