"""Parts of a device, one behind the other: the nodes that packets pass on the same cores.

A packet waits for the cores of the segment in which it is. Where segments have other cores, the
stamps between them say where each packet was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np

from tailtap.analysis.causes.late import Packets
from tailtap.analysis.causes.taxonomy import Served
from tailtap.analysis.causes.trace import Trace
from tailtap.analysis.evaluation.hops import first_between, ids_at
from tailtap.analysis.evaluation.values import NODE, Column
from tailtap.analysis.runs.folder import RunFolder, hop_captures
from tailtap.analysis.runs.run import Run
from tailtap.base.errors import InputError
from tailtap.base.units import ranges

UNKNOWN = -1
"""In place of a stamp that is missing."""


@dataclass(frozen=True)
class Segment:
    """Nodes that packets pass one after the other, on the same cores."""

    nodes: tuple[str, ...]
    """Empty where the device is one node, or where nobody says."""
    served: Served
    ingress: Path
    egress: Path

    def __str__(self) -> str:
        """As people read it: ``dut2 (CPU 1)``."""
        first, last = self.nodes[0], self.nodes[-1]
        cpus = self.served.cpus
        where = f"CPU{'s' if len(cpus) > 1 else ''} {ranges(cpus)}"
        return f"{first} to {last} ({where})" if len(self.nodes) > 1 else f"{first} ({where})"


def segments(run: Run, trace: Trace, folder: Path) -> tuple[Segment, ...]:
    """The segments that the packets of a run pass, in their order.

    Raises `InputError` where nodes work on different cores, and no packet was stamped between them.
    """
    ends = RunFolder(folder).ingress, RunFolder(folder).egress
    hops = hop_captures(run.record, folder)
    # The queue of a node is served by what serves the node.
    nodes = list(dict.fromkeys(hop.node for hop in hops)) or _passed(run, trace)
    servers = [trace.nodes[node] for node in nodes if node in trace.nodes]
    if not trace.nodes or len({one.cpus for one in servers}) <= 1 or len(servers) < len(nodes):
        return (Segment(tuple(nodes), trace.served, *ends),)
    if not hops:
        cores = ", ".join(f"{node} on {ranges(trace.nodes[node].cpus)}" for node in nodes)
        raise InputError(
            f"its nodes work on different CPUs ({cores}), and nobody knows in which of "
            "them a packet was late: measure with `dut.taps: hops`"
        ).at(run.slug)
    return tuple(
        _joined([(hop.node, trace.nodes[hop.node], hop.ingress, hop.egress) for hop in hops])
    )


def _passed(run: Run, trace: Trace) -> list[str]:
    """The nodes that are served on the way of the run's flow, in their order."""
    flows = run.record.flows if run.record else []
    name = run.variables.get("flow", flows[0].name if flows else "")
    path = next((flow.path for flow in flows if flow.name == name), trace.nodes)
    passed = dict.fromkeys(port.partition(":")[0] for port in path)
    return [node for node in passed if node in trace.nodes]


def _joined(rows: Sequence[tuple[str, Served, Path, Path]]) -> Iterator[Segment]:
    for _, group in groupby(rows, key=lambda row: row[1].cpus):
        ones = list(group)
        served = Served.together([one[1] for one in ones])
        nodes = tuple(dict.fromkeys(one[0] for one in ones))
        yield Segment(nodes, served, ones[0][2], ones[-1][3])


def leaving(run: Run, folder: Path) -> list[Path]:
    """The stamp files of all tap points behind something that serves."""
    hops = hop_captures(run.record, folder)
    return [hop.egress for hop in hops if hop.part == NODE] or [RunFolder(folder).egress]


def stamps_of(packets: Packets, ways: Sequence[Segment]) -> Column:
    """The stamps of packets at the ends of segments: a row for each packet, `UNKNOWN` for none.

    Ids may repeat in a long capture. A packet's own stamp is the first one of its id that lies
    between its stamps at both ends and not before the tap point that it passed last. Raises
    `InputError` when a stamp file cannot be read.
    """
    found = [packets.ingress_ns]
    if len(ways) > 1:
        ids = _ids(packets, ways[0].ingress, ways[-1].egress)
        passed = packets.ingress_ns
        for way in ways[:-1]:
            stamp = first_between(way.egress, ids, passed, packets.egress_ns, UNKNOWN)
            passed = np.maximum(passed, stamp)
            found.append(stamp)
    return np.column_stack([*found, packets.egress_ns])


def _ids(packets: Packets, ingress: Path, egress: Path) -> Column:
    """The ids of packets, by both of their stamps; `UNKNOWN` where nobody has both."""
    times, at_times = ids_at(egress, packets.egress_ns)
    first = np.searchsorted(times, packets.egress_ns, "left")
    last = np.searchsorted(times, packets.egress_ns, "right")
    found = np.full(packets.egress_ns.size, UNKNOWN, np.int64)
    pending = np.flatnonzero(first < last)
    while pending.size:
        # Nearly always one packet alone left at a time.
        ids, entered = at_times[first[pending]], packets.ingress_ns[pending]
        is_it = first_between(ingress, ids, entered, entered, UNKNOWN) != UNKNOWN
        found[pending[is_it]] = ids[is_it]
        pending = pending[~is_it]
        first[pending] += 1
        pending = pending[first[pending] < last[pending]]
    return found


def between(stamps: Column, place: int) -> Packets:
    """What packets passed of a segment, as if it were the device."""
    return Packets(stamps[:, place], stamps[:, place + 1])


def only(packets: Packets, chosen: Column) -> Packets:
    """Some of the packets, by their places."""
    return replace(
        packets, ingress_ns=packets.ingress_ns[chosen], egress_ns=packets.egress_ns[chosen]
    )
