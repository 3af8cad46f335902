"""What of a run is drawn: a track for each context of each core, late packets, and flows to them.

Times are those of the packets' stamps, CLOCK_MONOTONIC of the machine that took them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np

from tailtap.analysis.causes import trace as kinds
from tailtap.analysis.causes.lanes import LANES, Lane, Slice, rows
from tailtap.analysis.causes.stored import Causes
from tailtap.analysis.causes.taxonomy import Named, is_of
from tailtap.analysis.causes.trace import Sender, Shown, Window, merged
from tailtap.base.units import format_time
from tailtap.results.exporters.perfetto.tracks import Drawn, Tracks
from tailtap.results.exporters.tables import all_packets

AROUND_NS = 5_000_000
"""So much before and after each of the worst packets is drawn."""
MOST_LATE = 300
"""Late packets that are drawn, the worst first, unless all are asked for."""
TITLES: Mapping[Lane, str] = {
    "lost": "not traced", "steal": "steal", "nmi": "NMIs", "interrupt": "interrupts",
    "softirq": "softirqs", "task": "tasks", "waiting": "pending",
}  # fmt: skip
_IPI_FLOWS = 1 << 40
"""Flows below this number are those of packets."""
Row = dict[str, Any]


def write(causes: Causes, file: IO[bytes], *, packets: bool) -> None:
    """Write a run: windows around its worst packets or, with `packets`, all of it and of them.

    Raises `InputError` when the trace or, with `packets`, the captures cannot be read.
    """
    out = Tracks(file)
    if packets:
        windows = [causes.trace.span_ns]
    else:
        worst = causes.record.worst
        windows = merged((p.ingress_ns - AROUND_NS, p.egress_ns + AROUND_NS) for p in worst)
        shown = [Drawn(*window, "around the worst packets", "exported", {}) for window in windows]
        out.slices(out.track("exported"), shown)
    if causes.trace.clock is not None:
        out.slices(out.track("clock of the DuT's host"), _clock(causes.trace.clock, windows))
    if causes.guest is not None:
        out.slices(out.track("guest's clock"), _clock(causes.guest.clock, windows))
    found = causes.slices(windows)
    late = _overlapping(causes.late.to_pylist(), windows, "ingress_ns", "egress_ns")
    if not packets:
        late = sorted(late, key=lambda row: -row["latency_ns"])[:MOST_LATE]
    stalls = _overlapping(causes.stalls.to_pylist(), windows, "start_ns", "end_ns")
    leaving = _flows(late, stalls, found, causes)
    arriving = _senders(out, found)
    _draw_cores(out, found, leaving, arriving)
    _draw_stalls(out, stalls)
    held = {flow for flows in leaving.values() for flow in flows}
    _draw_late(out, causes, late, held)
    if packets:
        _draw_all(out, causes)


def _clock(clock: Shown, windows: Sequence[Window]) -> Iterator[Drawn]:
    """How far slices that another clock timed may be from where they are drawn."""
    for window in windows:
        off = int(clock.off_ns(np.array(window)).max())
        name = f"known to ±{format_time(off)}"
        yield Drawn(*window, name, "clock", {"off by at most ns": off})


def _overlapping(
    found: Sequence[Row], windows: Sequence[Window], start: str, end: str
) -> list[Row]:
    """The rows of a table that overlap a window, in the order of their starts."""
    shown = [
        row
        for row in found
        if any(row[start] < until and begun < row[end] for begun, until in windows)
    ]
    return sorted(shown, key=lambda row: (row[start], -row[end]))


def _flows(
    late: Sequence[Row], stalls: Sequence[Row], found: Sequence[Slice], causes: Causes
) -> dict[int, list[int]]:
    """For the slices that held late packets up, by their places, the flows to these packets."""
    seats = {} if causes.guest is None else causes.guest.seats
    # The core of this machine that each core of the guest has; they are pinned.
    hosts = {seats[one.id]: one.cpu for one in found
             if one.kind == kinds.TASK and not one.guest and one.id in seats}  # fmt: skip
    places: dict[tuple[bool, int | None, str], list[int]] = {}
    for place, one in enumerate(found):
        cpu = hosts.get(one.cpu) if one.guest else one.cpu
        places.setdefault((one.guest, cpu, one.cause), []).append(place)
    columns = {
        key: np.array([[found[at].start, found[at].end, at] for at in ours]).T
        for key, ours in places.items()
    }
    holding = {}
    for stall in stalls:
        of_guest = is_of("guest", Named(stall["cause"], stall["detail"]))
        ours = columns.get((of_guest, stall["cpu"], stall["cause"]))
        if ours is None:
            continue
        taken = np.minimum(ours[1], stall["end_ns"]) - np.maximum(ours[0], stall["start_ns"])
        if taken.max() > 0:
            holding[stall["stall"]] = int(ours[2][taken.argmax()])
    flows: dict[int, list[int]] = {}
    for row in late:
        holder = holding.get(row["stall"])
        if holder is not None and found[holder].start < row["egress_ns"]:
            flows.setdefault(holder, []).append(row["packet"] + 1)
    return flows


def _senders(out: Tracks, found: Sequence[Slice]) -> dict[int, list[int]]:
    """Draw where interrupts between cores were sent; the flows to the functions they called."""
    sent = {(one.core, one.end): one.start for one in found if one.kind == kinds.IPI_DELAY}
    arriving: dict[int, list[int]] = {}
    tracks: dict[str, int] = {}
    calls = [(place, one, sender) for place, one in enumerate(found)
             if one.kind == kinds.IPI_FUNCTION and (sender := Sender.of(one.id))]  # fmt: skip
    for place, one, sender in calls:
        core = one._replace(cpu=sender.cpu).core
        if core not in tracks:
            tracks[core] = out.track("IPIs sent", out.core(core), rank=len(LANES))
        arriving[place] = [_IPI_FLOWS + place]
        told = {"function": one.name, "to CPU": one.cpu}
        # What was entered within a microsecond has no record of its way.
        at = sent.get((one.core, one.start), one.start)
        out.instant(tracks[core], at, f"IPI to {one.core}", told, _IPI_FLOWS + place)
    return arriving


def _draw_cores(
    out: Tracks,
    found: Sequence[Slice],
    leaving: Mapping[int, Sequence[int]],
    arriving: Mapping[int, Sequence[int]],
) -> None:
    """Draw each lane of each core."""
    lanes: dict[tuple[tuple[bool, int, int], bool], list[tuple[int, Slice]]] = {}
    for place, one in enumerate(found):
        loose = one.number > 0 or one.lane == "waiting"
        lanes.setdefault((one.place, loose), []).append((place, one))
    for (where, loose), ones in sorted(lanes.items()):
        first, rank = ones[0][1], where[-1]
        title, core = TITLES[first.lane], out.core(first.core)
        drawn = [
            Drawn(one.start, one.end, one.name, one.cause, _told(one), leaving.get(place, ()),
                  arriving.get(place, ()))
            for place, one in ones
        ]  # fmt: skip
        if loose:
            short = " (short ones, added up)" if first.number else ""
            _draw_rows(out, drawn, title + short, core, rank)
        else:
            out.slices(out.track(title, core, rank=rank), drawn)


def _told(one: Slice) -> Row:
    """What is told of a slice beside its name."""
    told: Row = {"cause": one.cause}
    if one.number:
        return {**told, "short ones": one.number}
    match one.kind:
        case kinds.TASK:
            told |= {"pid": one.id, "process": one.aux & 0xFFFFFFFF}
        case kinds.IRQ:
            told["irq"] = one.id
        case kinds.SOFTIRQ if one.aux:
            told["raised before ns"] = one.aux & 0xFFFFFFFF if one.aux >> 60 else one.aux
        case kinds.IPI_FUNCTION | kinds.IPI_DELAY if sender := Sender.of(one.id):
            told["sender CPU"] = sender.cpu
            if sender.thread:
                told["sender thread"] = sender.thread
        case kinds.TLB_FLUSH:
            told["pages"] = one.aux if one.aux < 1 << 63 else "all"
    return told


def _draw_rows(
    out: Tracks, drawn: Sequence[Drawn], title: str, parent: int = 0, rank: int = 0
) -> None:
    """Draw slices that may overlap in any way, on as many tracks of one name as that needs."""
    tracks: dict[int, list[Drawn]] = {}
    for row, one in zip(rows([(one.start, one.end) for one in drawn]), drawn, strict=True):
        tracks.setdefault(row, []).append(one)
    for _, ones in sorted(tracks.items()):
        out.slices(out.track(title, parent, rank=rank), ones)


def _draw_stalls(out: Tracks, stalls: Sequence[Row]) -> None:
    """Draw the times in which cores did not serve."""
    drawn = []
    for row in stalls:
        name = f"stall {row['stall']}: {row['detail'] or row['cause']}"
        told = {key: row[key] for key in ("cause", "detail", "cpu", "direct", "behind")}
        drawn.append(Drawn(row["start_ns"], row["end_ns"], name, row["cause"], told))
    _draw_rows(out, drawn, "stalls")


def _draw_late(out: Tracks, causes: Causes, late: Sequence[Row], held: set[int]) -> None:
    """Draw late packets from stamp to stamp."""
    parts: dict[int, dict[str, int]] = {}
    shown = {row["packet"] for row in late}
    for part in causes.parts.to_pylist():
        if part["packet"] in shown:
            name = f"{part['cause']} ({part['detail']})" if part["detail"] else part["cause"]
            parts.setdefault(part["packet"], {})[f"{name} ns"] = part["ns"]
    words = {(p.ingress_ns, p.egress_ns): p for p in causes.record.worst}
    drawn = []
    for row in sorted(late, key=lambda row: row["ingress_ns"]):
        told = {key: row[key] for key in ("latency_ns", "excess_ns", "cause", "blamed", "detail",
                                          "state", "stall", "cpu")}  # fmt: skip
        worst = words.get((row["ingress_ns"], row["egress_ns"]))
        if worst is not None:
            told |= {"key": worst.key or "", "words": worst.words}
        told["parts"] = parts.get(row["packet"], {})
        flow = row["packet"] + 1
        drawn.append(Drawn(row["ingress_ns"], row["egress_ns"], row["blamed"], row["blamed"], told,
                           ending=(flow,) if flow in held else ()))  # fmt: skip
    _draw_rows(out, drawn, "late packets")


def _draw_all(out: Tracks, causes: Causes) -> None:
    """Draw every packet from stamp to stamp, and how many were in the device."""
    table = all_packets(causes.run)
    columns = (table[name].to_pylist() for name in ("ingress_ns", "egress_ns", "key"))
    drawn = [
        Drawn(start, end, "packet", "packet", {"key": key})
        for start, end, key in zip(*columns, strict=True)
    ]
    _draw_rows(out, drawn, "packets")
    track = out.track("packets in the device", unit="packets")
    inside = 0
    steps = [*((one.start, 1) for one in drawn), *((one.end, -1) for one in drawn)]
    for at, step in sorted(steps):
        inside += step
        out.counter(track, at, inside)
