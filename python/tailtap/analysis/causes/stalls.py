"""The worst stalls of a run in sentences, each with the worst packet that it made late."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np

from tailtap.analysis.causes.events import IPI_FUNCTION, Sender
from tailtap.analysis.causes.explain import Explained
from tailtap.analysis.causes.joined import BEHIND
from tailtap.analysis.causes.record import packet_words, where
from tailtap.analysis.causes.remedies import knobs_for
from tailtap.analysis.causes.segments import UNKNOWN
from tailtap.analysis.causes.taxonomy import NOTHING, SERVING
from tailtap.base.units import format_time

MOST_OWNERS = 3
MOST_KNOBS = 3
LEAST_NS = 1_000
"""What had less of a stall is not told."""


class Line(NamedTuple):
    """The worst packet of a stall, or of a queue that no stall made."""

    key: str
    """What the packet is known by: its key, or its ingress stamp where that is not kept."""
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
    for packet in islice(_worst(found), most):
        packets = found.joined.late.packets
        ingress = int(packets.ingress_ns[packet])
        key = found.keys.get((ingress, int(packets.egress_ns[packet]) - ingress))
        lines.append(Line(key or str(ingress), _words(found, packet)))
    return lines


def _worst(found: Explained) -> Iterator[int]:
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
    if not any(line.is_cause and line.name == joined.rows.names[row] for line in labels.rows):
        told += "" if unseen else " (present, not shown to be the cause)"
        knobs = []
    else:
        knobs = knobs_for(joined.rows.names[row], found.knobs, found.here)[:MOST_KNOBS]
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
    return "the trace saw nothing that served it" + "".join(
        f"; {task} had the core" for task in had
    )


def _course(found: Explained, stall: int) -> str:
    """What had the core during a stall, in the order of time."""
    joined = found.joined
    rows, owners = joined.rows, joined.cores.owners
    held: dict[str, _Held] = {}
    window = (int(joined.stall_start[stall]), int(joined.stall_end[stall]))
    for start, end, owner in joined.cores.between(int(joined.stall_cpu[stall]), *window):
        row = rows.of_owners[owner]
        if row in (NOTHING, SERVING):
            continue
        kind, _, more = owners[owner]
        words = str(rows.names[row])
        if kind == IPI_FUNCTION and (sender := Sender.of(more)):
            words += f" from {sender.words(found.trace.names.pids)}"
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
    return told or "nothing that the trace tells"
