"""What the cores did around the worst packets, as numbers for the page's script.

Times are in ns since the start of their window, but for those of windows, which are since the first
packet of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tailtap.analysis.causes.lanes import Lane, Slice, rows
from tailtap.analysis.causes.stored import Causes
from tailtap.analysis.causes.taxonomy import Named, own_detail
from tailtap.analysis.causes.trace import Window, merged
from tailtap.analysis.runs.text import time_text, typeset
from tailtap.records.causes import LatePacket

WORST = 30
"""Packets whose surroundings can be looked at."""
MOST_SLICES = 8_000
"""Slices of a run; the shortest are left out."""
FEWEST_SLICES = 300
"""Slices that a window may have in any case."""
MOST_PACKETS = 400
"""Late packets that a window shows, the latest first."""
LEAST_AROUND_NS, AROUND = 20_000, 0.3
"""So much before and after a stay is shown: a share of it, at least so long."""
PACKETS, STALLS = "late packets", "stalls"
TITLES: dict[Lane, str] = {
    "lost": "not traced", "steal": "steal", "nmi": "NMI", "interrupt": "interrupt",
    "softirq": "softirq", "task": "task", "waiting": "pending",
}  # fmt: skip
Json = dict[str, Any]


def timeline(causes: Causes) -> Json:
    """The worst packets of a run, and what lies around them."""
    packets = causes.record.worst[:WORST]
    bounds = {row["stall"]: (row["start_ns"], row["end_ns"]) for row in causes.stalls.to_pylist()}
    views = [_view(packet, bounds) for packet in packets]
    windows = merged(views)
    first = causes.run.stored.inputs.ingress.first_ns
    found = causes.slices(windows)
    lanes = {one.place: f"{one.core} {TITLES[one.lane]}" for one in found}
    titles = [PACKETS, STALLS, *(lanes[place] for place in sorted(lanes))]
    places = {place: at + 2 for at, place in enumerate(sorted(lanes))}
    texts: dict[str, int] = {}

    def number(text: str) -> int:
        return texts.setdefault(text, len(texts))

    parents = _parents(found)
    most = max(FEWEST_SLICES, MOST_SLICES // max(1, len(windows)))
    told = []
    for window in windows:
        ours = [one for one in found if one.start < window[1] and one.end > window[0]]
        longest = sorted(ours, key=lambda one: (one.number > 0, one.start - one.end))
        shown = sorted(longest[:most], key=lambda one: (one.depth, one.start))
        told.append(
            {
                "start": window[0] - first,
                "end": window[1] - first,
                "omitted": len(ours) - len(shown),
                "slices": {
                    "start": [max(one.start, window[0]) - window[0] for one in shown],
                    "end": [min(one.end, window[1]) - window[0] for one in shown],
                    "lane": [places[one.place] for one in shown],
                    "depth": [one.depth for one in shown],
                    "name": [number(one.name) for one in shown],
                    "cause": [number(shade(one.cause, one.name)) for one in shown],
                    "ns": [one.end - one.start for one in shown],
                    "short": [int(one.number > 0) for one in shown],
                    "split": [int(one in parents) for one in shown],
                },
                "late": _late(causes, window, number),
                "stalls": _stalls(causes, window, number),
            }
        )
    return {
        "lanes": titles,
        "windows": told,
        "packets": [
            _packet(packet, view, windows, first, causes)
            for packet, view in zip(packets, views, strict=True)
        ],
        "texts": list(texts),
    }


def shade(cause: str, detail: str) -> str:
    """What has a colour of its own: each task, and else each cause."""
    who = own_detail(Named(cause, detail)).rpartition(": ")[2]
    return f"task: {who}" if cause == "task" and who else cause


def _parents(found: Sequence[Slice]) -> set[Slice]:
    """Slices whose lower half belongs to those in them."""
    parents = set()
    last: Slice | None = None
    for one in found:
        if one.depth == 0:
            last = one
        elif last is not None:
            parents.add(last)
    return parents


def _view(packet: LatePacket, stalls: dict[int, Window]) -> Window:
    """What is shown of a packet: its stay, its stall unless that began long before, and around."""
    start, end = packet.ingress_ns, packet.egress_ns
    stay = end - start
    if packet.stall is not None:
        begun, ended = stalls[packet.stall]
        start, end = min(start, max(begun, start - 2 * stay)), max(end, min(ended, end + stay))
    around = max(LEAST_AROUND_NS, round(AROUND * stay))
    return start - around, end + around


def _packet(
    packet: LatePacket, view: Window, windows: Sequence[Window], first: int, causes: Causes
) -> Json:
    """A packet, and where in its window it is."""
    at = int(np.searchsorted([start for start, _ in windows], view[0], side="right")) - 1
    start = windows[at][0]
    cause = Named(packet.cause, packet.detail)
    seconds = (packet.ingress_ns - first) / 1e9
    return {
        "window": at,
        "view": [view[0] - start, view[1] - start],
        "start": packet.ingress_ns - start,
        "end": packet.egress_ns - start,
        "title": f"{time_text(packet.latency)}, {cause}, at {seconds:.3f} s",
        "words": typeset(packet.words),
        "clock": _clock(causes, packet.egress_ns),
        "parts": [[part.cause, part.detail, part.ns] for part in packet.parts],
    }


def _clock(causes: Causes, at: int) -> str:
    """How well lanes that were recorded by another clock stand to the packets at a time; empty
    where all is of one.
    """
    when, told = np.array([at]), []
    if causes.trace.clock is not None:
        off = int(causes.trace.clock.off_ns(when)[0])
        told.append(
            "Lanes are drawn by the clock of the DuT's host, and packets by that of the "
            f"timestamper's; how they stand to each other is known to ±{time_text(off)} here."
        )
    if causes.guest is not None:
        off = int(causes.guest.clock.off_ns(when)[0])
        told.append(
            "Lanes of the guest are drawn by its own clock, which the packets' stamps tell to "
            f"±{time_text(off)} here."
        )
    return " ".join(told)


def _late(causes: Causes, window: Window, number: Any) -> Json:
    """Late packets of a window, each in a row that it has to itself while it is in the device."""
    ingress, egress = (causes.column("late", name) for name in ("ingress_ns", "egress_ns"))
    inside = np.flatnonzero((ingress < window[1]) & (egress > window[0]))
    if inside.size > MOST_PACKETS:
        inside = inside[np.argsort(ingress[inside] - egress[inside])[:MOST_PACKETS]]
    inside = inside[np.argsort(ingress[inside], kind="stable")]
    blamed = causes.late.select(["blamed", "detail"]).take(inside).to_pylist()
    return {
        "start": (ingress[inside] - window[0]).tolist(),
        "end": (egress[inside] - window[0]).tolist(),
        "cause": [number(shade(row["blamed"], row["detail"])) for row in blamed],
        "row": rows(np.column_stack([ingress[inside], egress[inside]]).tolist()),
    }


def _stalls(causes: Causes, window: Window, number: Any) -> Json:
    begun, ended = (causes.column("stalls", name) for name in ("start_ns", "end_ns"))
    inside = np.flatnonzero((begun < window[1]) & (ended > window[0]))
    found = causes.stalls.take(inside).to_pylist()
    return {
        "start": [max(row["start_ns"], window[0]) - window[0] for row in found],
        "end": [min(row["end_ns"], window[1]) - window[0] for row in found],
        "ns": [row["end_ns"] - row["start_ns"] for row in found],
        "cause": [number(shade(row["cause"], row["detail"])) for row in found],
        "name": [
            number(f"stall {row['stall']}: {row['direct'] + row['behind']} late") for row in found
        ],
    }
