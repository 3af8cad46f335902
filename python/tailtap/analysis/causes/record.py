"""What was found of one run: `causes.json` and the tables beside it.

docs/reference/files.md describes both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tailtap.analysis.causes.claims import FALSE_CLAIMS, SEED
from tailtap.analysis.causes.explained import Explained
from tailtap.analysis.causes.joined import BEHIND, DIRECT, STATES
from tailtap.analysis.causes.labels import Row
from tailtap.analysis.causes.proven import proven, proven_words
from tailtap.analysis.causes.remedies import knobs_for, remedy
from tailtap.analysis.causes.segments import UNKNOWN
from tailtap.analysis.causes.taxonomy import NOTHING, Named, Served
from tailtap.analysis.causes.words import NO_REMEDY, packet_words, period_words, remedy_words
from tailtap.analysis.evaluation.values import Column
from tailtap.records.causes import (
    CauseName,
    CausePart,
    CauseRow,
    CausesRecord,
    ChanceTest,
    ClaimKind,
    GuestTold,
    LatePacket,
    LateRun,
    Looked,
    Period,
    Remove,
    Segment,
    ServedBy,
    TraceTold,
    Unexplained,
)
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
        causes=[_row(row, found) for row in labels.rows],
        unexplained=Unexplained(
            packets=labels.unexplained_packets,
            untraced=_untraced(found),
            delay_ns=labels.unexplained_ns,
        ),
        periods=[
            Period(
                cause=name.cause if name else None,
                detail=name.detail if name else None,
                period_ns=period.period_ns,
                z=period.z,
                false_alarm=period.false_alarm,
                sharpness=period.share,
                words=period_words(name, period),
            )
            for name, period in found.periods
        ],
        remove=_remove(found),
        test=ChanceTest(seed=SEED, false_claims=FALSE_CLAIMS),
        trace=TraceTold(
            events=int(found.joined.notes["records"]),
            lost=sum(found.joined.notes["lost"].values()),
            mode=trace.mode,
            missing=list(trace.missing),
            substitutes=list(trace.substitutes),
        ),
        control=found.control,
        clock=None
        if trace.clock is None
        else trace.clock.record(0 if untold is None else int(untold.sum())),
        guest=_guest(found),
        worst=[_packet(found, packet) for packet in _worst(found)],
        warnings=list(found.warnings),
    )
    told.made = mark(told)
    return told


def _untraced(found: Explained) -> int:
    """Unexplained packets that passed while nothing was traced."""
    joined, labels = found.joined, found.labels
    if not found.trace.paused_ns and not any(joined.notes["lost"].values()):
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
    """A part of the device, and how many late packets were late in it."""
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
    """What is known of the guest and of its clock."""
    guest, notes = found.guest, found.joined.guest_notes
    if guest is None or notes is None:
        return None
    return GuestTold(
        served=_served(guest.trace.served),
        clock=guest.clock.record(),
        coarse=found.joined.coarse,
        events=int(notes["records"]),
        lost=sum(notes["lost"].values()),
        missing=list(guest.trace.missing),
        substitutes=list(guest.trace.substitutes),
    )


def _remove(found: Explained) -> Remove:
    """Candidate remedies, what to type for them, and the tail without their causes."""
    causes = {row.name: row.packets for row in found.labels.rows if row.is_cause}
    packets = int(found.joined.state.size)
    here = found.here
    tail = found.removal.without if found.removal else None
    removal = remedy(causes, packets, found.knobs, here, tail)
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
    parts = [joined.rows.names[row] for row in joined.part_row.tolist()]
    stalls = [joined.rows.names[row] for row in joined.stall_row.tolist()]
    number = np.where(joined.stall == UNKNOWN, 0, joined.stall + 1)
    return {
        "causes-late": _table(
            packet=np.arange(joined.state.size),
            ingress_ns=late.packets.ingress_ns,
            egress_ns=late.packets.egress_ns,
            latency_ns=late.packets.latency_ns,
            excess_ns=late.excess_ns,
            segment=joined.segment + 1,
            cpu=joined.cpu,
            state=[STATES[state] for state in joined.state.tolist()],
            cause=[name.cause for name in names],
            blamed=[name.cause for name in blamed],
            detail=[name.detail for name in blamed],
            stall=number,
        ),
        "causes-parts": _table(
            packet=joined.of_packets(),
            cause=[_part_name(name) for name in parts],
            detail=[name.detail for name in parts],
            ns=joined.part_ns,
        ),
        "causes-stalls": _table(
            stall=np.arange(1, joined.stall_cpu.size + 1),
            cpu=joined.stall_cpu,
            start_ns=joined.stall_start,
            end_ns=joined.stall_end,
            cause=[name.cause for name in stalls],
            detail=[name.detail for name in stalls],
            direct=_of_stalls(found, DIRECT),
            behind=_of_stalls(found, BEHIND),
        ),
    }


def _table(**columns: Any) -> pa.Table:
    arrays = [pa.array(column) for column in columns.values()]
    return pa.Table.from_arrays(arrays, list(columns))


def _of_stalls(found: Explained, state: int) -> Column:
    """How many packets of a state each stall has."""
    joined = found.joined
    of_state = joined.stall[(joined.state == state) & (joined.stall != UNKNOWN)]
    return np.bincount(of_state, minlength=joined.stall_cpu.size).astype(np.int64)


def _part_name(name: Named) -> str:
    return "own-work" if name.cause == "serving" else name.cause


def _row(row: Row, found: Explained) -> CauseRow:
    claim, removal = row.claim, found.removal
    return CauseRow(
        cause=row.name.cause,
        detail=row.name.detail,
        claim=_claim(row),
        packets=row.packets,
        behind=row.behind,
        stalls=row.stalls,
        delay_ns=row.delay_ns,
        worst_ns=row.worst_ns,
        share=row.packets / found.joined.state.size,
        beyond_chance=claim.beyond_chance if claim else None,
        p_value=claim.p if claim else None,
        shifts=claim.shifts if claim else None,
        basis=row.basis,
        without=removal.without({row.name}) if removal and row.is_cause else None,
        knobs=[knob.name for knob in knobs_for(row.name, found.knobs, found.here)],
    )


def _claim(row: Row) -> ClaimKind:
    if row.is_cause and (row.claim is not None or row.held):
        return "cause"
    return "by-exclusion" if row.name.by_exclusion or row.name.cause == "mixed" else "present"


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
                cause=_part_name(joined.rows.names[row]),
                detail=joined.rows.names[row].detail,
                ns=ns,
            )
            for row, ns in joined.parts(packet)
        ],
        stall=None if stall == UNKNOWN else stall + 1,
        words=packet_words(joined, labels, packet, behind),
    )
