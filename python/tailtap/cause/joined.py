"""Late packets joined with what their cores did: parts, stalls and queues as columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tailtap import _core
from tailtap.cause.late import Late, Packets
from tailtap.cause.taxonomy import Rows, sort
from tailtap.cause.trace import Trace
from tailtap.evaluation.values import Column

DIRECT, BEHIND, QUEUED, OWN, UNEXPLAINED = range(5)
"""What became of a late packet."""
STATES = ("direct", "behind", "queued", "served", "unexplained")
UNKNOWN = -1
"""In place of a core, and of a stall."""


@dataclass(frozen=True)
class Joined:
    """Late packets and stalls by their places; see docs/explain.md."""

    late: Late
    cores: _core.Cores
    rows: Rows
    notes: Mapping[str, Any]
    cpu: Column
    state: Column
    stall: Column
    offset: Column
    """Where each packet's parts begin in `part_row` and `part_ns`; one more than packets."""
    part_row: Column
    part_ns: Column
    stall_cpu: Column
    stall_start: Column
    stall_end: Column
    stall_row: Column
    stall_worst: Column
    """The direct packet of each stall with the largest latency."""
    usual_ns: Mapping[int, int]
    """What usual packets see of each row."""

    def parts(self, packet: int) -> list[tuple[int, int]]:
        """Rows and nanoseconds of a packet, the largest first."""
        within = slice(int(self.offset[packet]), int(self.offset[packet + 1]))
        rows, ns = self.part_row[within].tolist(), self.part_ns[within].tolist()
        return sorted(zip(rows, ns, strict=True), key=lambda part: -part[1])

    def of_packets(self) -> Column:
        """The packet of each part."""
        return np.repeat(np.arange(len(self.state)), np.diff(self.offset))


def join(trace: Trace, late: Late, usual: Packets, egress: Path) -> Joined:
    """Join late packets with a trace. Raises `InputError` when a file cannot be read."""
    served = trace.served
    sides = (usual, late.packets)
    asked = np.unique(np.concatenate([ns for p in sides for ns in (p.ingress_ns, p.egress_ns)]))
    cores, notes = _core.Cores.read(
        trace.events,
        list(served.cpus),
        trace.ended_ns,
        egress=egress,
        times=asked,
        serving=served.vector if served.by == "softirq" else None,
    )
    positions = np.frombuffer(notes["positions"], np.int64)
    cpus = np.frombuffer(notes["cpus"], np.int64)
    only = served.cpus[0] if len(served.cpus) == 1 else UNKNOWN

    def stays(packets: Packets) -> tuple[Column, Column, Column, Column]:
        begun = np.searchsorted(asked, packets.ingress_ns)
        ended = np.searchsorted(asked, packets.egress_ns)
        cpu = np.where(cpus[ended] == UNKNOWN, only, cpus[ended])
        return packets.ingress_ns, packets.egress_ns, cpu, positions[ended] - positions[begun]

    rows = sort(cores.owners, trace.names, served)
    columns = stays(late.packets)
    found: Any = cores.join(list(rows.of_owners), stays(usual), columns, late.median_ns)

    def column(name: str) -> Column:
        return np.frombuffer(found[name], np.int64)

    return Joined(
        late=late,
        cores=cores,
        rows=rows,
        notes=notes,
        cpu=columns[2],
        state=column("state"),
        stall=column("stall"),
        offset=column("offset"),
        part_row=column("part_row"),
        part_ns=column("part_ns"),
        stall_cpu=column("stall_cpu"),
        stall_start=column("stall_start"),
        stall_end=column("stall_end"),
        stall_row=column("stall_row"),
        stall_worst=column("stall_worst"),
        usual_ns=dict(enumerate(found["usual_ns"])),
    )
