"""What was found of one run: `causes.json`, the tables beside it, and its worst stalls in words.

docs/reference/files.md describes the files.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from tailtap.analysis.causes.claims import FALSE_CLAIMS, SEED
from tailtap.analysis.causes.explain import Explained
from tailtap.analysis.causes.joined import BEHIND, DIRECT, OWN, QUEUED, STATES, Joined
from tailtap.analysis.causes.labels import Labels
from tailtap.analysis.causes.late import UNKNOWN
from tailtap.analysis.causes.remedies import Remedy, knobs_for, proven, proven_words, remedy
from tailtap.analysis.causes.taxonomy import (
    GUEST,
    NOTHING,
    SERVING,
    Named,
    Names,
    Served,
    raiser,
)
from tailtap.analysis.causes.trace import IPI_FUNCTION, Sender
from tailtap.analysis.evaluation.tables import table
from tailtap.analysis.evaluation.values import Column, label
from tailtap.base.units import format_time
from tailtap.records.causes import (
    CauseName,
    CausePart,
    CauseRow,
    CausesRecord,
    ChanceTest,
    FlowCause,
    GuestTold,
    LateFlow,
    LatePacket,
    LateRun,
    Looked,
    Remove,
    Segment,
    ServedBy,
    TraceTold,
    Unexplained,
    Without,
)
from tailtap.records.evaluation import packet_name
from tailtap.records.record import mark

WORST = 50
"""Packets that are told one by one."""


def record(found: Explained) -> CausesRecord:
    """What `causes.json` says. Times are in ns; what there is not, is None."""
    late, trace, labels = found.joined.late, found.trace, found.labels
    untold = found.joined.untold
    told = CausesRecord(
        run=found.run.slug,
        valid=found.run.valid,
        late=LateRun(
            threshold_ns=late.threshold_ns,
            packets=int(late.packets.ingress_ns.size),
            median_ns=late.median_ns,
            delay_ns=int(late.excess_ns.sum()),
            stalls=int(found.joined.stall_cpu.size),
            words=late.words,
            looked=_looked(found),
        ),
        served=_served(trace.served),
        segments=[_segment(found, place) for place in range(len(found.joined.segments))],
        causes=[_filled(row, found) for row in labels.rows],
        unexplained=Unexplained(
            packets=labels.unexplained_packets,
            untraced=_untraced(found),
            delay_ns=labels.unexplained_ns,
        ),
        periods=list(found.periods),
        remove=_remove(found),
        test=ChanceTest(seed=SEED, false_claims=FALSE_CLAIMS),
        trace=TraceTold(
            events=int(found.joined.laid.notes["records"]),
            lost=sum(found.joined.laid.notes["lost"].values()),
            mode=trace.record.mode,
            missing=trace.record.missing,
            substitutes=trace.record.substitutes,
        ),
        control=found.control,
        clock=None
        if trace.clock is None
        else trace.clock.record(0 if untold is None else int(untold.sum())),
        guest=_guest(found),
        worst=[_packet(found, packet) for packet in _worst(found)],
        flows=_flows(found),
        warnings=list(found.warnings),
    )
    told.made = mark(told)
    return told


def _flows(found: Explained) -> list[LateFlow]:
    latency = found.joined.late.packets.latency_ns
    whole = {flow.flow: flow for flow in found.run.stored.flows or ()}
    packets: dict[str, list[int]] = defaultdict(list)
    for packet, flow in enumerate(found.flows):
        packets[flow].append(packet)
    packets.pop("", None)
    rows = [
        LateFlow(
            flow=flow,
            late=len(mine),
            worst_ns=int(latency[mine].max()),
            causes=[
                FlowCause(cause=name.cause, detail=name.detail, packets=count)
                for name, count in Counter(map(found.labels.blame, mine)).most_common()
            ],
            whole=whole.get(flow),
        )
        for flow, mine in packets.items()
    ]
    return sorted(rows, key=lambda row: (-row.late, row.flow))


def _untraced(found: Explained) -> int:
    joined, labels = found.joined, found.labels
    if not found.trace.record.paused_ns and not any(joined.laid.notes["lost"].values()):
        return 0
    packets = joined.late.packets
    untraced = joined.laid.watched.untraced(joined.cpu, packets.ingress_ns, packets.egress_ns)
    return int((untraced & (labels.blamed == NOTHING)).sum())


def _served(served: Served) -> ServedBy:
    return ServedBy(by=served.by, cpus=list(served.cpus), pids=sorted(served.pids))


def _looked(found: Explained) -> Looked | None:
    """The lower threshold by which coincidences were tested; None where that asked for did."""
    looked = found.looked
    return None if looked is None else Looked(
        threshold_ns=looked.threshold_ns,
        packets=int(looked.packets.ingress_ns.size),
        stalls=found.looked_stalls,
        words=looked.words,
    )  # fmt: skip


def _segment(found: Explained, place: int) -> Segment:
    joined = found.joined
    way, here = joined.segments[place], joined.segment == place
    return Segment(
        segment=place + 1,
        nodes=list(way.nodes),
        by=way.served.by,
        cpus=list(way.served.cpus),
        packets=int(here.sum()),
        excess_ns=int(joined.excess_ns[here].sum()),
        words=str(way) if way.nodes else "",
    )


def _guest(found: Explained) -> GuestTold | None:
    guest, notes = found.guest, found.joined.laid.guest_notes
    if guest is None or notes is None:
        return None
    return GuestTold(
        served=_served(guest.trace.served),
        clock=guest.clock.record(),
        coarse=found.joined.coarse,
        events=int(notes["records"]),
        lost=sum(notes["lost"].values()),
        missing=guest.trace.record.missing,
        substitutes=guest.trace.record.substitutes,
    )


def _remove(found: Explained) -> Remove:
    causes = {
        Named(row.cause, row.detail): row.packets for row in found.labels.rows if row.is_cause
    }
    packets = int(found.joined.state.size)
    here = found.here
    tail = found.removal.without if found.removal else None
    removal = remedy(causes, packets, here, tail)
    shown = proven(here.trials, here.p, causes)
    said = proven_words(shown)
    if removal is None:
        return Remove(knobs=[], packets=0, share=0.0, causes=[], lines=[], without=None,
                      words=said or NO_REMEDY, proven=shown)  # fmt: skip
    without = None if tail is None else tail(removal.causes)
    lines = here.lines(removal.knobs)
    words = remedy_words(lines, removal, without)
    return Remove(
        knobs=[knob.name for knob in removal.knobs],
        packets=removal.packets,
        share=removal.share,
        causes=[CauseName(cause=name.cause, detail=name.detail) for name in sorted(removal.causes)],
        lines=lines,
        without=without,
        words=f"{said}; {words}" if said else words,
        proven=shown,
    )


def tables(found: Explained) -> dict[str, pa.Table]:
    """Late packets, their parts, and stalls, by the names of their Parquet files."""
    joined, labels = found.joined, found.labels
    late = joined.late
    names = [labels.names[row] for row in labels.of_packets.tolist()]
    blamed = [labels.names[row] for row in labels.blamed.tolist()]
    parts = [joined.laid.rows.names[row] for row in joined.part_row.tolist()]
    stalls = [joined.laid.rows.names[row] for row in joined.stall_row.tolist()]
    number = np.where(joined.stall == UNKNOWN, 0, joined.stall + 1)
    columns: Mapping[str, Sequence[Column | Sequence[str]]] = {
        "causes-late": (
            np.arange(joined.state.size),
            late.packets.ingress_ns,
            late.packets.egress_ns,
            late.packets.latency_ns,
            late.excess_ns,
            joined.segment + 1,
            joined.cpu,
            [STATES[state] for state in joined.state.tolist()],
            [name.cause for name in names],
            [name.cause for name in blamed],
            [name.detail for name in blamed],
            number,
        ),
        "causes-parts": (
            joined.of_packets(),
            [_part_name(name) for name in parts],
            [name.detail for name in parts],
            joined.part_ns,
        ),
        "causes-stalls": (
            np.arange(1, joined.stall_cpu.size + 1),
            joined.stall_cpu,
            joined.stall_start,
            joined.stall_end,
            [name.cause for name in stalls],
            [name.detail for name in stalls],
            joined.of_stalls(DIRECT),
            found.behind,
        ),
    }
    return {name: table(name, *each) for name, each in columns.items()}


def _part_name(name: Named) -> str:
    return "own-work" if name.cause == "serving" else name.cause


def _filled(row: CauseRow, found: Explained) -> CauseRow:
    """The row with what would be left without it, and what may help against it."""
    name, removal = Named(row.cause, row.detail), found.removal
    without = removal.without({name}) if removal and row.is_cause else None
    knobs = [knob.name for knob in knobs_for(name, found.here)]
    filled = replace(row, without=without, knobs=knobs)
    if name.cause in ("task", "kernel-thread"):
        tasks = [
            task for owner, names in _owners(found, name) if (task := names.tasks.get(owner[1]))
        ]
        filled.processes = len({task.pid for task in tasks})
        filled.task = tasks[0] if tasks else None
    elif name.cause in ("softirq", "foreign-net-rx"):
        raisers = [raiser(owner[2], names) for owner, names in _owners(found, name)]
        filled.raised_by = [
            CauseName(cause=one.cause, detail=one.detail) for one in dict.fromkeys(raisers) if one
        ]
    return filled


def _owners(found: Explained, name: Named) -> list[tuple[tuple[int, int, int], Names]]:
    """What had the stalls of a row, most of them first, and what its kernel calls things."""
    joined, owners = found.joined, found.joined.laid.cores.owners
    row = joined.laid.rows.names.index(name)
    held: Counter[int] = Counter()
    for stall in np.flatnonzero(joined.stall_row == row).tolist():
        since, until = int(joined.stall_start[stall]), int(joined.stall_end[stall])
        for start, end, owner in joined.laid.cores.between(
            int(joined.stall_cpu[stall]), since, until
        ):
            if joined.laid.rows.of_owners[owner] == row:
                held[owner] += min(end, until) - max(start, since)
    found_in = [owners[owner] for owner, _ in held.most_common()]
    guest = found.guest.trace if found.guest else found.trace
    return [(one, (guest if one[2] & GUEST else found.trace).names) for one in found_in]


def _worst(found: Explained) -> list[int]:
    latency = found.joined.late.packets.latency_ns
    return [int(at) for at in np.argsort(-latency, kind="stable")[:WORST]]


def _packet(found: Explained, packet: int) -> LatePacket:
    joined, labels = found.joined, found.labels
    packets = joined.late.packets
    ingress, egress = int(packets.ingress_ns[packet]), int(packets.egress_ns[packet])
    stall, cpu = int(joined.stall[packet]), int(joined.cpu[packet])
    behind = int(found.behind[stall]) if stall != UNKNOWN else 0
    return LatePacket(
        latency=egress - ingress,
        ingress_ns=ingress,
        egress_ns=egress,
        key=found.keys.get((ingress, egress - ingress)),
        segment=int(joined.segment[packet]) + 1,
        cpu=None if cpu == UNKNOWN else cpu,
        cause=labels.name(packet).cause,
        detail=labels.name(packet).detail,
        state=STATES[int(joined.state[packet])],
        parts=[
            CausePart(
                cause=_part_name(joined.laid.rows.names[row]),
                detail=joined.laid.rows.names[row].detail,
                ns=ns,
            )
            for row, ns in joined.parts(packet)
        ],
        stall=None if stall == UNKNOWN else stall + 1,
        words=packet_words(joined, labels, packet, behind),
    )


MOST_PARTS = 3
NO_REMEDY = "no knob of `tailtap host` that can be set here answers these causes"


def packet_words(joined: Joined, labels: Labels, packet: int, behind: int) -> str:
    """A late packet: how late, by what, and how many were behind its stall."""
    excess = int(joined.late.excess_ns[packet])
    head = f"{format_time(excess)} late{where(joined, packet)}: "
    state = int(joined.state[packet])
    stall = int(joined.stall[packet])
    blamed = labels.blame(packet)
    if state == BEHIND:
        return f"{head}behind stall {stall + 1}, {blamed}"
    if state == QUEUED:
        return f"{head}a queue that no stall made"
    if state == OWN:
        return f"{head}{labels.name(packet)}: the server had the core"
    if state != DIRECT:
        return f"{head}{STATES[state]}"
    parts = [(row, ns) for row, ns in joined.parts(packet) if row != SERVING][:MOST_PARTS]
    told = ", ".join(f"{joined.laid.rows.names[row]} for {format_time(ns)}" for row, ns in parts)
    more = f"; {behind} behind this stall" if behind and stall != UNKNOWN else ""
    doubt = "" if blamed.cause != "unexplained" else " (present, not shown to be the cause)"
    return f"{head}{told}{doubt}{more}"


def where(joined: Joined, packet: int) -> str:
    """Where a packet was late, if the device has several segments."""
    if len(joined.segments) == 1:
        return ""
    return f" in {joined.segments[int(joined.segment[packet])]}"


def remedy_words(lines: Sequence[str], remedy: Remedy, without: Without | None) -> str:
    """Candidates with what to type, and what would be left of the tail."""
    words = f"candidates, not tried here: {'; '.join(lines)}"
    if without is not None:
        words += f"; {estimate_words(sorted(remedy.causes), without)}"
    return words


def estimate_words(causes: Iterable[Named], without: Without) -> str:
    """What the tail would be without the time of some causes."""
    names = ", ".join(map(str, causes))
    now, worst = format_time(without.measured_ns), format_time(without.measured_worst_ns)
    then, left = (_at_most(ns, without) for ns in (without.percentile_ns, without.worst_ns))
    most = f"from {worst} to {left}" if left != worst else f"stays {worst}"
    return (
        f"estimate without {names}: {label(without.p)} falls from {now} to {then}, the maximum "
        f"{most}, if nothing else takes that time"
    )


def _at_most(value_ns: int, without: Without) -> str:
    return ("at most " if value_ns <= without.least_ns else "") + format_time(value_ns)


MOST_OWNERS = 3
MOST_KNOBS = 3
LEAST_NS = 1_000
"""What had less of a stall is not told."""


class Line(NamedTuple):
    """The worst packet of a stall, or of a queue that no stall made."""

    packet: str
    words: str


@dataclass
class _Held:
    """What one owner had of a stall, in ns."""

    words: str
    first: int
    last: int
    total: int = 0


def worst_stalls(found: Explained, most: int) -> list[Line]:
    """A line for each of the worst stalls, the one with the largest latency first.

    Late packets without a stall, whose stays overlap on a core, share a line.
    """
    lines = []
    for packet in islice(_worst_of_stalls(found), most):
        packets = found.joined.late.packets
        ingress = int(packets.ingress_ns[packet])
        key = found.keys.get((ingress, int(packets.egress_ns[packet]) - ingress), "")
        after = ingress - found.run.stored.inputs.ingress.first_ns
        lines.append(Line(packet_name(key, after), _words(found, packet)))
    return lines


def _worst_of_stalls(found: Explained) -> Iterator[int]:
    """The worst packet of each stall and of each queue, the largest latency first."""
    joined = found.joined
    packets = joined.late.packets
    stalls: set[int] = set()
    alone: list[tuple[int, int, int]] = []
    for packet in np.argsort(-packets.latency_ns, kind="stable").tolist():
        stall = int(joined.stall[packet])
        cpu = int(joined.cpu[packet])
        stays = joined.stays
        ingress, egress = int(stays.ingress_ns[packet]), int(stays.egress_ns[packet])
        if stall != UNKNOWN:
            new = stall not in stalls
            stalls.add(stall)
        else:
            new = all(
                cpu != other or egress <= start or end <= ingress for other, start, end in alone
            )
            if new:
                alone.append((cpu, ingress, egress))
        if new:
            yield packet


def _words(found: Explained, packet: int) -> str:
    """A packet: how late, what had its core during its stall, and who else waited."""
    joined, labels = found.joined, found.labels
    stall = int(joined.stall[packet])
    if stall == UNKNOWN:
        return packet_words(joined, labels, packet, 0)
    row = int(joined.stall_row[stall])
    excess = format_time(int(joined.late.excess_ns[packet]))
    unseen = joined.unseen is not None and bool(joined.unseen[packet])
    course = _not_seen(found, packet) if unseen else _course(found, stall)
    told = f"{excess} late{where(joined, packet)}: {course}"
    behind = int(found.behind[stall])
    more = int((joined.stall == stall).sum()) - behind - int(joined.state[packet] != BEHIND)
    shown = {(line.cause, line.detail) for line in labels.rows if line.is_cause}
    if joined.laid.rows.names[row] not in shown:
        told += "" if unseen else " (present, not shown to be the cause)"
        knobs = []
    else:
        knobs = knobs_for(joined.laid.rows.names[row], found.here)[:MOST_KNOBS]
    if more:
        told += f"; {more} more {_packets(more)} waited for its end"
    if behind:
        told += f"; {behind} {_packets(behind)} behind this stall"
    return told + (f"; candidates: {', '.join(knob.name for knob in knobs)}" if knobs else "")


def _packets(count: int) -> str:
    return "packet" if count == 1 else "packets"


def _not_seen(found: Explained, packet: int) -> str:
    """What is known of the core of a packet while its trace saw nothing."""
    joined = found.joined
    left_ns = joined.stays.egress_ns[[packet]]
    had = joined.laid.watched.tasks(joined.cpu[[packet]], left_ns)
    return "no softirq was recorded" + "".join(f"; {task} had the core" for task in had)


def _course(found: Explained, stall: int) -> str:
    """What had the core during a stall, in the order of time."""
    joined = found.joined
    rows, owners = joined.laid.rows, joined.laid.cores.owners
    held: dict[str, _Held] = {}
    window = (int(joined.stall_start[stall]), int(joined.stall_end[stall]))
    for start, end, owner in joined.laid.cores.between(int(joined.stall_cpu[stall]), *window):
        row = rows.of_owners[owner]
        if row in (NOTHING, SERVING):
            continue
        kind, _, more = owners[owner]
        words = str(rows.names[row])
        if kind == IPI_FUNCTION and (sender := Sender.of(more)):
            words += f" from {sender.words(found.trace.names)}"
        one = held.setdefault(words, _Held(words, start, end))
        one.last, one.total = end, one.total + end - start
    largest = sorted(held.values(), key=lambda one: -one.total)[:MOST_OWNERS]
    kept = [one for one in largest if one.total >= LEAST_NS] or largest[:1]
    kept.sort(key=lambda one: one.first)
    told = ""
    for place, one in enumerate(kept):
        if place:
            told += ", then " if one.first >= kept[place - 1].last else " and "
        told += f"{one.words} for {format_time(one.total)}"
    return told or "nothing that the trace records"
