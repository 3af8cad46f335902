"""Results of other tools as runs: a row for each in `TOOLS`, told apart by how files begin.

A row reads a text into `Reading`s, whatever is wrong being a `ValueError`. `runs` makes of them
what an import puts into the database, with the doubts that their form brings as warnings.
"""

from __future__ import annotations

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
    """A tool: whether a file is of it, by its first characters, and its measurements."""

    knows: Callable[[str], bool]
    read: Callable[..., Iterator[Reading]]
    unit: bool = False
    """Whether its files do not say their unit: `read` is then told one, in ns."""

    def readings(self, text: str, unit: int | None = None) -> Iterator[Reading]:
        """What a file says. Raises `ValueError`."""
        return self.read(text, unit) if self.unit else self.read(text)


TOOLS: Mapping[str, Tool] = {
    "HdrHistogram log": Tool(histograms.knows_hlog, histograms.read_hlog, unit=True),
    "wrk2": Tool(requests.knows_wrk, requests.read_wrk),
    "HdrHistogram percentiles": Tool(histograms.knows_hgrm, histograms.read_hgrm, unit=True),
    "fortio": Tool(requests.knows_fortio, requests.read_fortio),
    "vegeta": Tool(requests.knows_vegeta, requests.read_vegeta),
    "k6": Tool(requests.knows_k6, requests.read_k6),
    "hey or oha": Tool(requests.knows_hey, requests.read_hey),
    "ghz": Tool(requests.knows_ghz, requests.read_ghz),
    "iperf2": Tool(packets.knows_iperf, packets.read_iperf),
    "sockperf": Tool(packets.knows_sockperf, packets.read_sockperf),
    "netperf": Tool(packets.knows_netperf, packets.read_netperf),
    "TRex": Tool(packets.knows_trex, packets.read_trex),
    "cyclictest": Tool(realtime.knows_cyclictest, realtime.read_cyclictest),
    "rtla": Tool(realtime.knows_rtla, realtime.read_rtla),
}


def tool_of(head: str) -> str | None:
    """The tool that a file is of, by how it begins; of JSON, by all of it."""
    return next((name for name, tool in TOOLS.items() if tool.knows(head)), None)
