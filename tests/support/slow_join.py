"""The join once more: nanosecond by nanosecond, as docs/explanation/causes.md states it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from traced import Record

Owner = tuple[int, int, int]
NOBODY: Owner = (0, 0, 0)
STOLEN: Owner = (255, 0, 0)
UNTOLD: Owner = (253, 0, 0)
CONTEXTS = {6: 0, 9: 0, 5: 1, 1: 2, 2: 2, 10: 3}
REFINEMENTS = (3, 8, 11, 12, 13, 14, 15, 17, 20)
OVERLAYS = {4: 0, 7: 1, 19: 2}
RAISED_NS = 2000
LOST, IDLE, VECTOR, FUNCTION, FLUSH, RUNNABLE = 254, 9, 2, 3, 12, 19
DELAY, SOFTIRQ = 4, 5
NOTHING, SERVING = 0, 1


class Cover(NamedTuple):
    """A context that covers time; the largest one has it."""

    level: int
    start: int
    order: int
    end: int
    owner: Owner


def owner_of(record: Record) -> Owner:
    """Who a record speaks of."""
    kind, aux = record.kind, record.aux
    if kind == 3:
        return kind, aux, record.id
    if kind == 6:
        return kind, record.id, int(bool(aux >> 40 & 0xFF)) | 2 * (aux >> 48 & 1)
    if kind in (8, 11):
        return kind, aux, 0
    if kind in (1, 2, 5, 9, 12, 17):
        return kind, record.id, 0
    return kind, 0, 0


def stretches(record: Record) -> list[tuple[int, int]]:
    """The time of a record; of several short ones, spread over their window."""
    if not record.flags & 1:
        return [(record.start, record.start + record.dur)]
    window = max(record.aux >> 32, record.dur)
    number = min(max(record.aux & 0xFFFFFFFF, 1), 1024, max(record.dur, 1))
    found = []
    room = window - (record.dur - record.dur * (number - 1) // number)
    for place in range(number):
        start = record.start + room * place // max(1, number - 1)
        length = record.dur * (place + 1) // number - record.dur * place // number
        found.append((start, start + length))
    return found


def end_of(record: Record) -> int:
    return record.start + (max(record.aux >> 32, record.dur) if record.flags & 1 else record.dur)


def owners(
    records: Sequence[Record], ended: int, until: int, serving: int | None = None
) -> list[Owner]:
    """Who has each nanosecond of a core before `until`; no packet left in a softirq that serves."""
    contexts: list[tuple[int, bool, int, int, int, Owner]] = []
    overlays: list[tuple[int, int, int, int, Owner]] = []
    stolen: set[int] = set()
    lost: set[int] = set()
    throttled: set[int] = set()
    told: set[int] = set()
    previous = records[0].start if records else 0
    functions: list[int] = []
    flushes: list[Record] = []
    order = 0
    for place, record in enumerate(records):
        kind, end = record.kind, end_of(record)
        if kind == LOST:
            after = end_of(records[place + 1]) if place + 1 < len(records) else ended
            lost.update(range(record.start, max(end, after)))
            end = max(end, after)
        owner = owner_of(record)
        if kind == SOFTIRQ and record.id == serving and not record.flags & 1:
            owner = kind, record.id, 1
            if record.aux > RAISED_NS:
                told.update(range(max(0, record.start - record.aux), record.start))
        if kind == FUNCTION:
            functions.append(record.start)
        if kind == FLUSH and record.dur == 0:
            flushes.append(record)
        if kind == VECTOR and flushes and record.start <= flushes[-1].start <= end:
            flush = flushes.pop()
            flushes.clear()
            if not (functions and record.start <= functions[-1] <= end):
                owner = owner_of(flush)
        for start, stop in stretches(record) if kind != LOST else []:
            order += 1
            if kind in CONTEXTS or kind in REFINEMENTS:
                level = CONTEXTS.get(kind, -1)
                contexts.append((start, kind in REFINEMENTS, -stop, order, level, owner))
            elif kind == RUNNABLE and record.aux & 1:
                throttled.update(range(start, stop))
            elif kind in OVERLAYS:
                if kind == DELAY:
                    told.update(range(start, stop))
                overlays.append((OVERLAYS[kind], start, order, stop, owner))
        if record.steal:
            length = min(record.steal, max(0, end - previous))
            stop = max(record.start, previous + length)
            stolen.update(range(stop - length, stop))
        if kind != LOST:
            previous = max(previous, end)
    covers: list[Cover] = []
    for place, (start, refines, minus_end, _, level, owner) in enumerate(sorted(contexts)):
        end = -minus_end
        if start >= end:
            continue
        base = None
        if refines:
            base = max((c for c in covers if c.start <= start < c.end), default=None)
            if base is None:
                continue
            end = min(end, base.end)
        height = base.level if refines and base else level
        covers.append(Cover(height, start, place, end, owner))
    untold = set(range(until)) - told if serving is not None else set()
    return [_owner_at(t, covers, overlays, stolen, lost, throttled, untold) for t in range(until)]


def _owner_at(
    t: int,
    covers: Sequence[Cover],
    overlays: Sequence[tuple[int, int, int, int, Owner]],
    stolen: set[int],
    lost: set[int],
    throttled: set[int],
    untold: set[int],
) -> Owner:
    if t in lost:
        return NOBODY
    top = max((c for c in covers if c.start <= t < c.end), default=None)
    if top is not None and top.level == 0 and t in throttled:
        return RUNNABLE, 0, 0
    if top is None:
        return STOLEN if t in stolen else NOBODY
    if top.owner[0] == IDLE:
        over = max((o for o in overlays if o[1] <= t < o[3]), default=None)
        return top.owner if over is None else over[4]
    if t in stolen:
        return STOLEN
    return UNTOLD if top.level == 0 and t in untold else top.owner


class Stay(NamedTuple):
    """A packet: its stamps, its core (-1 for unknown), and how many left meanwhile."""

    ingress: int
    egress: int
    cpu: int
    left: int


@dataclass
class Answer:
    """What the join says; a stall is (core, start, end, row), and -1 in place of none."""

    usual: dict[int, int]
    parts: list[dict[int, int]]
    states: list[int]
    stalls_of: list[int]
    stalls: list[list[int]]
    worst: list[int]


def join(
    rows: Mapping[int, Sequence[int]],
    causes: Sequence[int],
    usual: Sequence[Stay],
    late: Sequence[Stay],
    median: int,
) -> Answer:
    """The join of packets with cores, given the row of each nanosecond of each core."""
    known = [p for p in usual if p.cpu in rows]
    total: Counter[int] = Counter()
    for packet in known:
        total.update(rows[packet.cpu][packet.ingress : packet.egress])
    mean = {row: ns // len(known) for row, ns in total.items()}
    usual_left = sum(p.left for p in known) // len(known) if known else 0
    answer = Answer(mean, [], [], [], [], [])
    queues: dict[int, tuple[int, int]] = {}
    for place, packet in enumerate(late):
        parts = _parts(rows, packet, mean, median)
        excess = max(0, packet.egress - packet.ingress - median)
        whole, served = sum(parts.values()), parts.get(SERVING, 0)
        state, stall = 4, -1
        if packet.cpu >= 0 and whole > 0 and 2 * whole >= excess:
            end, best = queues.get(packet.cpu, (0, -1))
            if packet.ingress >= end:
                best = -1
            if whole - served >= served:
                state, stall = 0, _stall(rows[packet.cpu], packet, place, late, answer)
                if best < 0 or _length(answer, stall) > _length(answer, best):
                    best = stall
            elif best >= 0:
                state, stall = 1, best
            else:
                state = 2 if packet.left >= 2 * (usual_left + 1) else 3
            queues[packet.cpu] = max(end, packet.egress), best
        answer.parts.append(parts)
        answer.states.append(state)
        answer.stalls_of.append(stall)
    for stall_ in answer.stalls:
        counted = Counter(r for r in rows[stall_[0]][stall_[1] : stall_[2]] if r != SERVING)
        of_causes: Counter[int] = Counter()
        for row, ns in counted.items():
            of_causes[causes[row]] += ns
        stall_[3] = max(counted, key=lambda row: (of_causes[causes[row]], counted[row], row))
    return answer


def _parts(
    rows: Mapping[int, Sequence[int]], packet: Stay, usual: Mapping[int, int], median: int
) -> dict[int, int]:
    if packet.cpu not in rows:
        return {}
    seen = Counter(rows[packet.cpu][packet.ingress : packet.egress])
    more = {row: ns - usual.get(row, 0) for row, ns in seen.items() if row != NOTHING}
    more = {row: ns for row, ns in more.items() if ns > 0}
    surplus = sum(more.values()) - max(0, packet.egress - packet.ingress - median)
    for row in sorted(more, key=lambda row: (more[row], row)):
        if surplus <= 0:
            break
        taken = min(surplus, more[row])
        more[row] -= taken
        surplus -= taken
    return {row: ns for row, ns in more.items() if ns > 0}


def _stall(
    rows: Sequence[int], packet: Stay, place: int, late: Sequence[Stay], answer: Answer
) -> int:
    best, begun = (0, 0), None
    for t in range(packet.ingress, packet.egress):
        begun = None if rows[t] == SERVING else t if begun is None else begun
        if begun is not None and t + 1 - begun > best[1] - best[0]:
            best = (begun, t + 1)
    for number, stall in enumerate(answer.stalls):
        between = rows[min(stall[2], best[1]) : max(stall[2], best[1])]
        if stall[0] == packet.cpu and SERVING not in between:
            stall[1:3] = min(stall[1], best[0]), max(stall[2], best[1])
            known = late[answer.worst[number]]
            if packet.egress - packet.ingress > known.egress - known.ingress:
                answer.worst[number] = place
            return number
    answer.stalls.append([packet.cpu, *best, NOTHING])
    answer.worst.append(place)
    return len(answer.stalls) - 1


def _length(answer: Answer, stall: int) -> int:
    return answer.stalls[stall][2] - answer.stalls[stall][1]
