"""What a tracer tells of a machine, byte for byte as docs/reference/files.md states it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.simulation.machine import FOREVER, QUOTA, SOFTIRQ, Course, Integers, Times, split

DELAY, CONTEXT_TASK, IDLE, WAKEUP, RUNNABLE, TOLD, LOST = 4, 6, 9, 7, 19, 21, 254
THROTTLED = 1
"""Of a thread that could run: its group had no quota."""
SHORT_KINDS, NET_RX = (1, 2, 5), 3
SUM_NS, AGE_NS = 5_000, 1_000_000
IDLE_NS, DELAY_NS, AWAY_NS = 1_000, 1_000, 5_000
LAYOUT = np.dtype(
    [("start", "<u8"), ("dur", "<u4"), ("kind", "u1"), ("flags", "u1"), ("cpu", "<u2"),
     ("aux", "<u8"), ("id", "<u4"), ("steal", "<u4")]
)  # fmt: skip
"""Where the fields of a record are in a file."""


Records = npt.NDArray[np.void]


def of_course(
    made: Course,
    cpu: int,
    floor_ns: int = 0,
    told: tuple[int, int] = (0, 0),
    missing: Sequence[int] = (),
) -> Records:
    """The records of a core, in the order in which they ended; interrupts and softirqs shorter
    than `floor_ns` are added up. `told` is who tells its softirq of packets, and by what function.
    Of kinds that are `missing` there are none.
    """
    if not made.job:
        return np.zeros(0, LAYOUT)
    delays = [_delays(made, *told)] if made.server.by == "softirq" else []
    found = in_order(np.concatenate([_above(made), *_tasks(made), *delays]))
    found = found[~np.isin(found["kind"], missing)]
    found["cpu"] = cpu
    found = _summed(found, floor_ns) if floor_ns else found
    return _stolen(found, made)


def in_order(records: Records) -> Records:
    """By their ends; what lies in another one comes before that."""
    ends = records["start"].astype(np.int64) + records["dur"]
    found: Records = records[np.lexsort((-records["start"].astype(np.int64), ends))]
    return found


def columns(start: Integers, dur: Integers, **more: Any) -> Records:
    """Records of these columns."""
    found = np.zeros(np.size(start), LAYOUT)
    for name, column in {"start": start, "dur": dur, **more}.items():
        found[name] = column
    return found


class _Jobs:
    """The jobs of a core: what each is, and from when to when it lasted."""

    def __init__(self, made: Course) -> None:
        self.what = np.array(made.what, np.int64)
        self.ready = np.array(made.ready, np.int64)
        at = np.array(made.job, np.int64)
        self.first, self.alone, self.last = (np.zeros(self.what.size, np.int64) for _ in range(3))
        self.first[at[::-1]] = np.array(made.start, np.int64)[::-1]  # the last assignment stays
        self.alone[at[::-1]] = np.array(made.end, np.int64)[::-1]  # until when nobody came
        self.last[at] = np.array(made.end, np.int64)


def _of(made: Course, name: str) -> Integers:
    """A number of each row of the table."""
    return np.array([getattr(what, name) for what in made.table], np.int64)


def _inner(
    made: Course, what: Integers, start: Integers, alone: Integers, end: Integers, edge: int
) -> Records:
    """What lies in records, nearly from their start to their end. It begins while they run."""
    table = [one.inner or (0, 0, 0) for one in made.table]
    inner = np.array(table, np.uint64).reshape(-1, 3)[what]
    has = inner[:, 0] > 0
    off = np.minimum(edge, (np.minimum(alone, end) - start)[has] // 3)
    kind, id, aux = inner[has].T
    return columns(start[has] + off, (end - start)[has] - 2 * off, kind=kind, id=id, aux=aux)


def _above(made: Course) -> Records:
    """Interrupts and softirqs, with what they did."""
    jobs = _Jobs(made)
    kinds, softirq = _of(made, "kind")[jobs.what], _of(made, "level")[jobs.what] == SOFTIRQ
    chosen = ~np.isin(kinds, (CONTEXT_TASK, IDLE, 0)) & (jobs.last > 0)
    what, start, alone, end = (
        column[chosen] for column in (jobs.what, jobs.first, jobs.alone, jobs.last)
    )
    waited = np.where(softirq[chosen], start - jobs.ready[chosen], 0)
    aux = _of(made, "aux")[what] + waited
    whole = columns(start, end - start, kind=kinds[chosen], id=_of(made, "id")[what], aux=aux)
    return np.concatenate([_inner(made, what, start, alone, end, 100), whole])


class Stays:
    """Tasks and idle side by side: a task has its core until another one comes, or it has done."""

    def __init__(self, made: Course) -> None:
        jobs = _Jobs(made)
        job = np.array(made.job, np.int64)
        kinds = _of(made, "kind")
        base = np.isin(kinds[jobs.what[job]], (CONTEXT_TASK, IDLE))
        job = job[base]
        start, end = (np.array(side, np.int64)[base] for side in (made.start, made.end))
        what = jobs.what[job]
        served = what == made.place(made.server.what)
        alone, is_task = end.copy(), kinds[what] == CONTEXT_TASK
        goes_on = is_task & ((jobs.last[job] > end) | (served & made.server.polls))
        same = is_task[1:] & (what[1:] == what[:-1]) & (goes_on[:-1] | (start[1:] == end[:-1]))
        end[:-1] = np.where(goes_on[:-1], start[1:], end[:-1])
        first = np.flatnonzero(np.append(True, ~same))
        self.begun, self.over = start[first], end[np.append(first[1:] - 1, same.size)]
        self.what, self.alone, self.is_task = what[first], alone[first], is_task[first]
        # A thread that serves was woken, or could run and did not.
        mine = first[served[first]]
        self.woken, self.came = jobs.first[job[mine]] == start[mine], start[mine]
        lost_ns = np.append(0, self.over[served[first]])[:-1]
        self.since = np.where(self.woken, jobs.ready[job[mine]], lost_ns)

    def throttled(self, made: Course) -> Times:
        """When the thread that serves had no quota: since it was woken or left its core, or would
        have come next, until the scheduler next chose a task when there was some.
        """
        lacks = np.array([what.level == QUOTA for what in made.table])[self.what]
        idles, chosen = (np.append(times, FOREVER) for times in (self.begun[lacks], self.begun))
        found = []
        for since, came in zip(self.since.tolist(), self.came.tolist(), strict=True):
            for begun, over in made.short:
                if begun < came and over > since:
                    first = since if begun <= since else idles[np.searchsorted(idles, begun)]
                    until = min(came, chosen[np.searchsorted(chosen, over)])
                    found += [(first, until)] * bool(first < until)
        start, end = np.array(found, np.int64).reshape(-1, 2).T
        return start, end


def _tasks(made: Course) -> Iterator[Records]:
    stays = Stays(made)
    begun, over, what = stays.begun, stays.over, stays.what
    lasting = stays.is_task | (over - begun >= IDLE_NS)
    table = {name: _of(made, name)[what][lasting] for name in ("kind", "id", "aux")}
    yield _inner(made, what, begun, stays.alone, over, 200)
    yield columns(begun[lasting], (over - begun)[lasting], **table)
    if made.server.what.kind != CONTEXT_TASK or (made.server.polls and not made.short):
        return
    waits = split((stays.since, stays.came), stays.throttled(made))
    for (since, until), aux in zip(waits, (THROTTLED, 0), strict=True):
        woken = np.isin(since, stays.since[stays.woken]) & (aux == 0)
        kind = np.where(woken, WAKEUP, RUNNABLE)
        yield columns(since, until - since, kind=kind, id=made.server.what.id, aux=aux)


def _summed(records: Records, floor_ns: int) -> Records:
    """Short interrupts and softirqs of one kind added up, for so long or so much of them; not a
    softirq that receives packets and had to wait.
    """
    short = np.isin(records["kind"], SHORT_KINDS) & (records["dur"] < floor_ns)
    short &= (records["kind"] != 5) | (records["id"] != NET_RX) | (records["aux"] <= DELAY_NS)
    rest = records[~short]
    sums = []
    ones = records[short]
    for kind, id in {(int(one["kind"]), int(one["id"])) for one in ones}:
        mine = ones[(ones["kind"] == kind) & (ones["id"] == id)]
        begun, total, count, until = 0, 0, 0, 0
        told = []
        for start, dur in zip(mine["start"].tolist(), mine["dur"].tolist(), strict=True):
            if count and (total >= SUM_NS or start + dur - begun > AGE_NS):
                told.append((begun, total, until - begun << 32 | count))
                count = 0
            if not count:
                begun, total = start, 0
            total, count, until = total + dur, count + 1, start + dur
        told.append((begun, total, until - begun << 32 | count))
        start, dur, aux = np.array(told, np.int64).T
        sums.append(columns(start, dur, kind=kind, id=id, aux=aux, flags=1, cpu=mine["cpu"][0]))
    whole = np.concatenate([rest, *sums])
    found: Records = whole[np.argsort(ends(whole), kind="stable")]
    return found


def ends(records: Records) -> Integers:
    """When each record ends."""
    dur = records["dur"].astype(np.int64)
    window = (records["aux"] >> np.uint64(32)).astype(np.int64)
    lasted = np.where(records["flags"] == 1, np.maximum(window, dur), dur)
    found: Integers = records["start"].astype(np.int64) + lasted
    return found


def of_sender(made: Course, cpu: int, core: int) -> Records:
    """What a tracer follows of a core that tells `core` of packets: what held it for long, and when
    it told that core for the first time, or after much was stolen of it.
    """
    found = in_order(np.concatenate([_above(made), *_tasks(made)]))
    held = np.isin(found["kind"], (1, 2, CONTEXT_TASK)) & (found["dur"] >= AWAY_NS)
    found = found[held & (found["id"] != made.server.what.id)]
    told = np.array(made.left[1::2], np.int64)
    telling = columns(told, 0 * told, kind=TOLD, id=core)
    found = _stolen(in_order(np.concatenate([found, telling])), made)
    kept = (found["kind"] != TOLD) | (found["steal"] >= AWAY_NS)
    kept[np.flatnonzero(found["kind"] == TOLD)[0]] = True
    found["cpu"] = cpu
    chosen: Records = found[kept]
    return chosen


def _delays(made: Course, sender: int, function: int) -> Records:
    """From sending an interrupt to entering it, where that takes long."""
    jobs = _Jobs(made)
    tells = jobs.what == made.place(made.server.waking[0][0])
    since, until = jobs.ready[tells], jobs.first[tells]
    late = until - since > DELAY_NS
    return columns(since[late], (until - since)[late], kind=DELAY, id=sender, aux=function)


def _stolen(records: Records, made: Course) -> Records:
    """Each record with what the hypervisor took since the one before it; not the first."""
    taken = [what.cause == "steal" for what in made.table]
    if not any(taken):
        return records
    away = np.array(taken)[np.array(made.what)[made.job]]
    start, end = (np.array(side, np.int64)[away] for side in (made.start, made.end))
    upto = taken_before(start, end, np.maximum.accumulate(ends(records)))
    records["steal"] = np.diff(upto, prepend=upto[:1])
    return records


def taken_before(start: Integers, end: Integers, times: Integers) -> Integers:
    """How much of stretches, which ascend and do not overlap, lies before each time."""
    sums = np.append(0, np.cumsum(end - start))
    at = np.searchsorted(start, times, "right")
    over = np.where(at > 0, np.maximum(0, np.append(end, 0)[np.maximum(at - 1, 0)] - times), 0)
    found: Integers = sums[at] - over
    return found


def packed(records: Records) -> bytes:
    """A file of records."""
    return b"TTTRACE1" + records.tobytes()


def write_trace(folder: Path, records: Records, **facts: Any) -> None:
    """`trace.events` and `trace.json`; `facts` are keys of the latter."""
    (folder / "trace.events").write_bytes(packed(records))
    said = {
        "schema": "tailtap.trace/1", "clock": "monotonic", "boot_id": "b", "mode": "full",
        "records": int(records.size), "lost": {}, "missing": [], "substitutes": [], "steal": True,
        "floor_ns": 0, "kernel": "6.18",
    }  # fmt: skip
    (folder / "trace.json").write_text(json.dumps({**said, **facts}))
