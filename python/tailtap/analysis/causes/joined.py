"""Late packets joined with what their cores did: parts, stalls and queues as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tailtap import _core
from tailtap.analysis.causes.guest import Guest
from tailtap.analysis.causes.late import UNKNOWN, Late, Packets, Segment, between, only, stamps_of
from tailtap.analysis.causes.taxonomy import GUEST, NOTHING, SERVING, Rows, Served, sort
from tailtap.analysis.causes.trace import Chosen, Trace, Watched, too_coarse
from tailtap.analysis.clocks.host import HostClock
from tailtap.analysis.evaluation.values import Column, summed

DIRECT, BEHIND, QUEUED, OWN, UNEXPLAINED = range(5)
"""What became of a late packet."""
STATES = ("direct", "behind", "queued", "served", "unexplained")
MOST_UNSEEN = 0.1
"""Where more of all packets left outside of their core's softirqs, stamps tell nothing of these."""


@dataclass(frozen=True)
class Joined:
    """Late packets and stalls by their places; see docs/explanation/causes.md.

    Where packets pass several segments, what became of each is told of its `segment`: the one that
    took most more than usual. Its parts are those of all.
    """

    late: Late
    laid: Laid
    segments: tuple[Segment, ...]
    segment: Column
    """Of each packet."""
    stays: Packets
    """When each packet came into its segment, and when it left that."""
    excess_ns: Column
    """How much longer than usual its segment took."""
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
    coarse: int = 0
    """Packets that the guest's clock is too coarse for: what they saw of the guest is service."""
    unseen: Chosen | None = None
    """Packets that waited for a core whose trace saw nothing that served them. None: not one."""
    untold: Chosen | None = None
    """Packets that the clock of the DuT's host is too coarse for: nothing is told of them. None
    where that is the clock of the stamps."""

    def parts(self, packet: int) -> list[tuple[int, int]]:
        """Rows and nanoseconds of a packet, the largest first."""
        within = slice(int(self.offset[packet]), int(self.offset[packet + 1]))
        rows, ns = self.part_row[within].tolist(), self.part_ns[within].tolist()
        return sorted(zip(rows, ns, strict=True), key=lambda part: -part[1])

    def of_stalls(self, state: int) -> Column:
        """How many late packets of each stall are in a state."""
        stalls = self.stall[(self.state == state) & (self.stall != UNKNOWN)]
        return np.bincount(stalls, minlength=self.stall_cpu.size).astype(np.int64)

    def of_packets(self) -> Column:
        """The packet of each part."""
        return np.repeat(np.arange(len(self.state)), np.diff(self.offset))

    def server(self, packet: int) -> Served:
        """By what a packet is served in its segment."""
        return self.segments[int(self.segment[packet])].served


@dataclass(frozen=True)
class Laid:
    """What the cores did in a run, whichever of its packets are joined with it."""

    cores: _core.Cores
    """What had each core when, with a guest's time in place of that of its threads."""
    host: _core.Cores
    rows: Rows
    """What owners of time are called."""
    notes: Mapping[str, Any]
    """What the reader of the trace found out, and that of the guest's."""
    guest_notes: Mapping[str, Any] | None
    watched: Watched


def _lay(trace: Trace, first: Segment, leaving: Sequence[Path], guest: Guest | None) -> Laid:
    """`first` is the segment to which senders hand packets."""
    clock = trace.clock
    host, notes = _core.Cores.read(
        trace.events,
        list(trace.served.cpus),
        trace.record.ended_ns,
        serving=trace.served.serving(leaving if clock is None else ()),
    )
    if trace.record.senders and trace.served.by != "vcpu":
        senders, _ = _core.Cores.read(trace.events, trace.record.senders, trace.record.ended_ns)
        host = host.with_senders(senders, first.served.cpus)
    if clock is not None:
        theirs, ours = (side.tolist() for side in clock.moments())
        host = host.on_clock(list(zip(theirs, ours, strict=True)))
    cores, guest_notes = (host, None) if guest is None else guest.below(host)
    kernel = None if guest is None else guest.kernel
    rows = sort(cores.owners, trace.names, trace.served, kernel)
    return Laid(cores, host, rows, notes, guest_notes, Watched(trace))


def join(
    trace: Trace,
    late: Late,
    usual: Packets,
    ways: Sequence[Segment],
    leaving: Sequence[Path],
    guest: Guest | None = None,
    *,
    laid: Laid | None = None,
) -> Joined:
    """Join late packets with a trace and, below it, with that of a `guest`.

    `laid` is what an earlier join of the run has laid out.

    `ways` are the segments that packets pass, and `leaving` the stamp files behind what serves.
    Packets that the guest's clock is too coarse for see its time as service. Raises `InputError`
    when a file cannot be read.
    """
    stamps = [stamps_of(packets, ways) for packets in (usual, late.packets)]
    asked = [_times(stamps, place) for place in range(len(ways))]
    with ThreadPoolExecutor(max_workers=1) as reading:  # beside the layout
        told = [reading.submit(way.leaving, times) for way, times in zip(ways, asked, strict=True)]
        laid = laid or _lay(trace, ways[0], leaving, guest)
        passing = [
            Passing(way, times, *one.result(), trace.clock)
            for way, times, one in zip(ways, asked, told, strict=True)
        ]
    cores, rows = laid.cores, laid.rows
    if len(ways) > 1:
        return _of_segments(late, laid, passing, *stamps)

    [only] = passing
    before, columns = (only.stays(packets, guest, laid.host) for packets in (usual, late.packets))
    known, untold = only.known(columns, late.excess_ns)

    def joined(of_owners: Sequence[int]) -> Joined:
        found = _join(laid, of_owners, before, known, late.median_ns)
        nowhere = np.zeros(late.excess_ns.size, np.int64)
        return Joined(
            late=late,
            laid=laid,
            segments=tuple(ways),
            segment=nowhere,
            stays=late.packets,
            excess_ns=late.excess_ns,
            cpu=columns[2],
            untold=untold,
            **found,
        )

    whole = joined(rows.of_owners)
    if guest is None:
        return whole
    coarse = too_coarse(guest.clock, late.packets.egress_ns, late.excess_ns)
    if not coarse.any():
        return whole
    hosts = [
        SERVING if owner[2] & GUEST else row
        for owner, row in zip(cores.owners, rows.of_owners, strict=True)
    ]
    return _either(whole, joined(hosts), coarse)


Stays = tuple[Column, Column, Column, Column]
"""Ingress and egress stamps, cores, and packets that left meanwhile."""
Found = dict[str, Any]
"""Columns of `Joined`, by name."""


class Passing(NamedTuple):
    """What the stamps behind a segment say at some times, which ascend."""

    way: Segment
    times: Column
    positions: Column
    """How many packets had left before each."""
    cpus: Column
    """The core on which one left then; `UNKNOWN` where nobody says."""
    clock: HostClock | None = None
    """How the clock of the cores stands to that of the stamps, where they are of two machines."""

    def stays(
        self, packets: Packets, guest: Guest | None = None, host: _core.Cores | None = None
    ) -> Stays:
        """The stays of packets in the segment."""
        cpus = self.way.served.cpus
        begun = np.searchsorted(self.times, packets.ingress_ns)
        ended = np.searchsorted(self.times, packets.egress_ns)
        only = cpus[0] if len(cpus) == 1 else UNKNOWN
        if guest is not None and host is not None and only == UNKNOWN:
            cpu = guest.cores_of(packets.egress_ns, host, cpus)
        elif self.clock is not None:  # stamps name cores of their own machine
            cpu = np.full(packets.egress_ns.size, only, np.int64)
        else:
            cpu = np.where(self.cpus[ended] == UNKNOWN, only, self.cpus[ended])
        left = self.positions[ended] - self.positions[begun]
        return packets.ingress_ns, packets.egress_ns, cpu, left

    def known(self, stays: Stays, excess_ns: Column) -> tuple[Stays, Chosen | None]:
        """Stays that are to be joined, and of which the clock tells nothing: the core is unknown
        there.
        """
        if self.clock is None:
            return stays, None
        ingress_ns, egress_ns, cpu, left = stays
        untold = too_coarse(self.clock, egress_ns, excess_ns)
        return (ingress_ns, egress_ns, np.where(untold, UNKNOWN, cpu), left), untold


def _times(stamps: Sequence[Column], place: int) -> Column:
    """All stamps at the ends of a segment, ascending, each once."""
    ends = np.concatenate([side[:, place : place + 2].ravel() for side in stamps])
    times = np.sort(ends)
    found: Column = times[np.diff(times, prepend=-1) != 0]  # np.unique takes five times as long
    return found


def _join(laid: Laid, of_owners: Sequence[int], usual: Stays, late: Stays, median_ns: int) -> Found:
    told: Any = laid.cores.join(list(of_owners), laid.rows.causes, usual, late, median_ns)
    found: Found = {name: np.frombuffer(told[name], np.int64) for name in _COLUMNS}
    return found | _unseen(laid, found, usual, late)


def _unseen(laid: Laid, found: Found, usual: Stays, late: Stays) -> Found:
    """What changes as the trace saw nothing that served some packets that waited for their core."""
    rows = np.array([name.is_untold for name in laid.rows.names])
    untold = rows[found["part_row"]]
    if not untold.any():
        return {}
    _, left_ns, cpu, _ = late
    packet = np.repeat(np.arange(cpu.size), np.diff(found["offset"]))
    places = np.unique(packet[untold])
    unseen = np.zeros(cpu.size, bool)
    unseen[places] = laid.watched.unseen(cpu[places], left_ns[places])
    _, usually_ns, core, _ = usual
    # Stamps may be made behind the core that serves, after it is done.
    if not unseen.any() or laid.watched.unseen(core, usually_ns).mean() > MOST_UNSEEN:
        return {}
    row = np.where(untold & unseen[packet], NOTHING, found["part_row"])
    parts = _summed(packet, row, found["part_ns"], cpu.size, rows.size)
    of_unseen = rows[found["stall_row"]] & unseen[found["stall_worst"]]
    return {
        **dict(zip(("offset", "part_row", "part_ns"), parts, strict=True)),
        "stall_row": np.where(of_unseen, NOTHING, found["stall_row"]),
        "unseen": unseen,
    }


_COLUMNS = ("state", "stall", "offset", "part_row", "part_ns", "stall_cpu", "stall_start",
            "stall_end", "stall_row", "stall_worst")  # fmt: skip


def _of_segments(
    packets: Late, laid: Laid, passing: Sequence[Passing], usual: Column, late: Column
) -> Joined:
    """Each packet joined segment by segment. A segment's usual time is the median of a sample."""
    size = len(late)
    known = (late[:, 1:] != UNKNOWN) & (late[:, :-1] != UNKNOWN)
    times = np.diff(late, axis=1)
    sampled = usual[(usual != UNKNOWN).all(axis=1)]
    median = np.median(np.diff(sampled, axis=1), axis=0) if len(sampled) else np.zeros(len(passing))
    excess = np.where(known, times - median.astype(np.int64), np.iinfo(np.int64).min)
    segment = excess.argmax(axis=1)
    every = np.arange(size)
    state, cpu = np.full(size, UNEXPLAINED, np.int64), np.full(size, UNKNOWN, np.int64)
    stall = np.full(size, UNKNOWN, np.int64)
    unseen = np.zeros(size, bool)
    owners: list[Column] = []
    parts: list[tuple[Column, Column]] = []
    stalls: list[Found] = []
    before = 0
    for place, one in enumerate(passing):
        slowed = np.flatnonzero(excess[:, place] > 0)
        slowed = slowed[np.argsort(late[slowed, place + 1], kind="stable")]
        stays = one.stays(only(between(late, place), slowed))
        before_it = one.stays(between(sampled, place))
        found = _join(laid, laid.rows.of_owners, before_it, stays, int(median[place]))
        if "unseen" in found:
            unseen[slowed] |= found["unseen"]
        here = segment[slowed] == place
        mine = slowed[here]
        state[mine], cpu[mine] = found["state"][here], stays[2][here]
        stall[mine] = np.where(
            found["stall"][here] == UNKNOWN, UNKNOWN, found["stall"][here] + before
        )
        owners.append(np.repeat(slowed, np.diff(found["offset"])))
        parts.append((found["part_row"], found["part_ns"]))
        stalls.append(found)
        before += found["stall_cpu"].size
    excess_ns = np.maximum(excess[every, segment], 0)
    rows, ns = (np.concatenate(column) for column in zip(*parts, strict=True))
    offset, rows, ns = _summed(np.concatenate(owners), rows, ns, size, len(laid.rows.names))
    kept, numbers = np.unique(stall[stall != UNKNOWN], return_inverse=True)
    stall[stall != UNKNOWN] = numbers
    stall_cpu, stall_start, stall_end, stall_row = (
        np.concatenate([found[name] for found in stalls])[kept]
        for name in ("stall_cpu", "stall_start", "stall_end", "stall_row")
    )
    return Joined(
        late=packets,
        laid=laid,
        segments=tuple(one.way for one in passing),
        segment=segment,
        stays=_own(late, segment),
        excess_ns=excess_ns,
        cpu=cpu,
        unseen=unseen if unseen.any() else None,
        state=state,
        stall=stall,
        offset=offset,
        part_row=rows,
        part_ns=ns,
        stall_cpu=stall_cpu,
        stall_start=stall_start,
        stall_end=stall_end,
        stall_row=stall_row,
        stall_worst=_worst(stall, state, excess_ns, kept.size),
    )


def _own(stamps: Column, segment: Column) -> Packets:
    """The stamps of each packet at the ends of its segment."""
    every = np.arange(len(stamps))
    return Packets(stamps[every, segment], stamps[every, segment + 1])


def _summed(
    packets: Column, rows: Column, ns: Column, size: int, width: int
) -> tuple[Column, Column, Column]:
    """Parts by packet and row, each once: where those of each packet begin, rows, and ns."""
    which, sums = summed(packets * width + rows, ns)
    counts = np.bincount(which // width, minlength=size)
    return np.concatenate([[0], np.cumsum(counts)]), which % width, sums


def _worst(stall: Column, state: Column, excess_ns: Column, count: int) -> Column:
    """The packet of each stall that waited longest; direct ones come before others."""
    order = np.lexsort((excess_ns, state == DIRECT))
    order = order[stall[order] != UNKNOWN]
    worst = np.zeros(count, np.int64)
    worst[stall[order]] = order  # the last one stays
    return worst


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
