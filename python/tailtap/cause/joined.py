"""Late packets joined with what their cores did: parts, stalls and queues as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tailtap import _core
from tailtap.cause.guest import Chosen, Guest
from tailtap.cause.late import Late, Packets
from tailtap.cause.taxonomy import GUEST, SERVING, Rows, sort
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
    guest_notes: Mapping[str, Any] | None = None
    """What the reader of the guest's trace found out."""
    coarse: int = 0
    """Packets that the guest's clock is too coarse for: what they saw of the guest is service."""

    def parts(self, packet: int) -> list[tuple[int, int]]:
        """Rows and nanoseconds of a packet, the largest first."""
        within = slice(int(self.offset[packet]), int(self.offset[packet + 1]))
        rows, ns = self.part_row[within].tolist(), self.part_ns[within].tolist()
        return sorted(zip(rows, ns, strict=True), key=lambda part: -part[1])

    def of_packets(self) -> Column:
        """The packet of each part."""
        return np.repeat(np.arange(len(self.state)), np.diff(self.offset))


def join(
    trace: Trace, late: Late, usual: Packets, egress: Path, guest: Guest | None = None
) -> Joined:
    """Join late packets with a trace and, below it, with that of a `guest`.

    Packets that the guest's clock is too coarse for see its time as service. Raises `InputError`
    when a file cannot be read.
    """
    served = trace.served
    sides = (usual, late.packets)
    times = np.sort(np.concatenate([ns for p in sides for ns in (p.ingress_ns, p.egress_ns)]))
    asked = times[np.diff(times, prepend=-1) != 0]  # np.unique takes five times as long
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
    host = cores

    def stays(packets: Packets) -> tuple[Column, Column, Column, Column]:
        begun = np.searchsorted(asked, packets.ingress_ns)
        ended = np.searchsorted(asked, packets.egress_ns)
        if guest is not None and only == UNKNOWN:
            cpu = guest.cores_of(packets.egress_ns, host, served.cpus)
        else:
            cpu = np.where(cpus[ended] == UNKNOWN, only, cpus[ended])
        return packets.ingress_ns, packets.egress_ns, cpu, positions[ended] - positions[begun]

    kernel, guest_notes = None, None
    if guest is not None:
        kernel = guest.kernel
        cores, guest_notes = guest.below(cores)
    rows = sort(cores.owners, trace.names, served, kernel)
    before, columns = stays(usual), stays(late.packets)

    def joined(of_owners: Sequence[int]) -> Joined:
        found: Any = cores.join(list(of_owners), before, columns, late.median_ns)

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
            guest_notes=guest_notes,
        )

    whole = joined(rows.of_owners)
    if guest is None:
        return whole
    coarse = guest.coarse(late.packets.egress_ns, late.excess_ns)
    if not coarse.any():
        return whole
    hosts = [SERVING if owner[2] & GUEST else row
             for owner, row in zip(cores.owners, rows.of_owners, strict=True)]  # fmt: skip
    return _either(whole, joined(hosts), coarse)


def _either(one: Joined, other: Joined, chosen: Chosen) -> Joined:
    """The packets of one join but for those that are `chosen`, which are of the other one."""
    moved = np.where(other.stall == UNKNOWN, UNKNOWN, other.stall + one.stall_cpu.size)
    stall = np.where(chosen, moved, one.stall)
    kept, place = np.unique(stall[stall != UNKNOWN], return_inverse=True)
    stall[stall != UNKNOWN] = place

    def of_stalls(name: str) -> Column:
        both: Column = np.concatenate([getattr(one, name), getattr(other, name)])[kept]
        return both

    counts = np.where(chosen, np.diff(other.offset), np.diff(one.offset))
    from_one, from_other = (
        np.repeat(wanted, np.diff(side.offset))
        for side, wanted in ((one, ~chosen), (other, chosen))
    )
    order = np.argsort(
        np.concatenate([one.of_packets()[from_one], other.of_packets()[from_other]]), kind="stable"
    )

    def of_parts(name: str) -> Column:
        mine, others = getattr(one, name)[from_one], getattr(other, name)[from_other]
        both: Column = np.concatenate([mine, others])[order]
        return both

    return replace(
        one,
        coarse=int(chosen.sum()),
        state=np.where(chosen, other.state, one.state),
        stall=stall,
        offset=np.concatenate([[0], np.cumsum(counts)]),
        part_row=of_parts("part_row"),
        part_ns=of_parts("part_ns"),
        stall_cpu=of_stalls("stall_cpu"),
        stall_start=of_stalls("stall_start"),
        stall_end=of_stalls("stall_end"),
        stall_row=of_stalls("stall_row"),
        stall_worst=of_stalls("stall_worst"),
    )
