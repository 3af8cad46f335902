"""Results of other tools as runs: a row for each in `TOOLS`, told apart by how files begin.

A row reads a text into `Reading`s, whatever is wrong being a `ValueError`. `runs` makes of them
what an import puts into the database, with the doubts that their form brings as warnings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tailtap.output.importers.tools import hlog, load, packets, wrk
from tailtap.output.importers.tools.reading import Reading

__all__ = ["TOOLS", "Tool", "tool_of"]


@dataclass(frozen=True)
class Tool:
    """A tool: whether a file is of it, by its first characters, and its measurements."""

    knows: Callable[[str], bool]
    read: Callable[[str], Iterator[Reading]]


TOOLS: Mapping[str, Tool] = {
    "HdrHistogram log": Tool(hlog.knows, hlog.read),
    "wrk2": Tool(wrk.knows, wrk.read),
    "fortio": Tool(load.knows_fortio, load.read_fortio),
    "ghz": Tool(load.knows_ghz, load.read_ghz),
    "iperf2": Tool(packets.knows_iperf, packets.read_iperf),
    "sockperf": Tool(packets.knows_sockperf, packets.read_sockperf),
    "TRex": Tool(packets.knows_trex, packets.read_trex),
}


def tool_of(head: str) -> str | None:
    """The tool that a file is of, by how it begins."""
    return next((name for name, tool in TOOLS.items() if tool.knows(head)), None)
