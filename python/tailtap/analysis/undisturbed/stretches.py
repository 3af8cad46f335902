"""Which stretches of time are left out around pauses from outside, and which packets stay.

A stretch is chosen by when the pause was and by how many packets were in the device, never by the
latency of a packet. It begins a while before the pause, for the packets that the pause found in the
device. It ends the same while after the first packet behind the pause that found no more packets in
the device than packets usually find. In a queue, whatever came later is as late as it would have
been without the pause: both have the same work before them from the moment on in which the longer
queue is empty (regeneration; Asmussen, Applied Probability and Queues, 2003, chapters VI and X).

That moment comes when the device is least busy, and a sample that began there would have too few
late packets. So it does not begin there: it begins the while later, in which the device forgets
that it was empty. The while is the 99.9th percentile of the packets that a first pass without it
leaves.

What a pause does has an end. Below a load of 90 % the packets of a pause are served within nine
times its length, and no packet is later by more than that length. So neither the while nor the wait
for the queue is longer than ten times the pause. Without this, a pause of 30 us that falls into a
stall of the device would take the rest of the stall away.

Whether pauses from outside came when they liked, or when the device was busy.

Leaving out is fair to the device only if pauses do not look at what it does. A host that takes the
core of whoever used it most, for one, pauses a device when it has much to do: what is left is then
its easier time. So the load just before pauses is held against that before the same pauses at other
times: those of each twentieth of the run are shifted together by a random time, around the end of
the run. That keeps how they come in groups. One shift for all, as in `causes.claims`, would keep
them in step with a load that comes and goes.

When the machine under the device or the generator was taken away, as times.

A trace tells of steal, on the cores that serve and on those that send, and of the threads of a
virtual machine that were stopped; where there is none but a virtual machine's own, that tells what
was stolen from it. A generator that sends at a constant pace spins on its core until
the next packet is due, so that a packet which left late tells when it was away. Where this kernel's
own work had its core meanwhile, by the trace, nobody from outside took it: that is not left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tailtap.analysis.causes import trace as kinds
from tailtap.analysis.causes.trace import Events, Spans, Trace, read_events
from tailtap.analysis.clocks.host import GuestClock
from tailtap.analysis.evaluation.evaluate import SECOND_NS
from tailtap.analysis.evaluation.values import Column
from tailtap.analysis.runs.run import Run
from tailtap.records.datapath import GeneratorRecord
from tailtap.records.evaluation import By
from tailtap.records.record import read
from tailtap.records.stamps import read_stamps

WHILE = 0.999
"""The percentile of the latency that a stretch begins earlier by, and ends later."""
MOST = 10
"""Neither of both is longer than so many times the pause."""


@dataclass(frozen=True)
class Left:
    """What is left of a run around some pauses."""

    out: Spans
    """The stretches that are left out."""
    kept: npt.NDArray[np.bool_]
    """Of each packet whether it stays, by when it came."""
    busy: npt.NDArray[np.bool_]
    """Of each packet whether it found more packets in the device than usual."""
    while_ns: int
    """By how much stretches begin earlier and end later, at most."""


def leave_out(pauses: Spans, ingress_ns: Column, latency_ns: Column) -> Left:
    """Leave out the stretches around `pauses`. Packets ascend by `ingress_ns`; some are there."""
    left = np.sort(ingress_ns + latency_ns)
    inside = np.arange(ingress_ns.size) - np.searchsorted(left, ingress_ns, "right")
    busy: npt.NDArray[np.bool_] = inside > int(np.median(inside))
    calm = ingress_ns[~busy]
    last = int(left[-1]) + 1
    drained = np.append(calm, last)[np.searchsorted(calm, pauses.end)]
    most = MOST * (pauses.end - pauses.start)
    drained = np.minimum(drained, pauses.end + most)
    out, while_ns = Spans.merged(pauses.start, drained), 0
    kept = ~out.has(ingress_ns)
    if pauses.start.size and kept.any():
        while_ns = int(np.quantile(latency_ns[kept], WHILE, method="inverted_cdf"))
        around = np.minimum(while_ns, most)
        out = Spans.merged(pauses.start - around, drained + around)
        kept = ~out.has(ingress_ns)
    return Left(out, kept, busy, while_ns)


SHIFTS = 999
SEED = 1
LEAST_P = 0.01
"""With a smaller p pauses depend on the load: of 100 runs in which they do not, one is refused."""
BLOCKS, FEWEST = 20, 5
"""Into so many parts a run is cut. Pauses in fewer of them than this show nothing."""
WINDOWS = (64, 512, 4096)
"""The time before a pause that is looked at, in mean gaps between packets."""
MOST_PAUSES = 2_000
"""So many pauses are looked at, evenly over the run."""
MARGIN = 0.05
"""A load that differs by no more than this part of the usual one does not count: at a constant pace
the test would see parts of a packet, as stretches end when one comes."""
PART = 0.1
"""At most this part of a run is looked at."""

Floats = npt.NDArray[np.float64]


def independence(pauses: Spans, left: Left, ingress_ns: Column) -> float | None:
    """The p-value of pauses that do not depend on the load; None where they are too few to tell.

    The load is how many packets came in a window before the pause, and which part of them found the
    device busier than usual, both of what is left. The largest deviation of all, by their own
    spread over shifts, counts (Westfall and Young, Resampling-based multiple testing, 1993).
    """
    first, last = int(ingress_ns[0]), int(ingress_ns[-1])
    length = last - first
    if length <= 0:
        return None
    begins = pauses.start[(pauses.start > first) & (pauses.start < last)] - first
    begins = begins[np.linspace(0, begins.size - 1, min(begins.size, MOST_PAUSES)).astype(np.int64)]
    block = begins * BLOCKS // length
    if np.unique(block).size < FEWEST or not left.kept.any():
        return None
    came = ingress_ns[left.kept] - first
    busy = np.append(0, np.cumsum(left.busy[left.kept]))
    gap = length / ingress_ns.size
    windows = sorted({min(int(count * gap), int(PART * length)) for count in WINDOWS})
    shifts = np.random.default_rng(SEED).integers(1, length, (SHIFTS, BLOCKS))
    out = Spans(left.out.start - first, left.out.end - first).within(0, length)

    def loads(shift: Column) -> list[float]:
        until = (begins + shift[block]) % length - left.while_ns
        found = []
        for window in windows:
            since = np.maximum(until - window, 0)
            here = until > since
            one, other = (np.searchsorted(came, side[here]) for side in (since, until))
            packets = int((other - one).sum())
            times = (side[here] - out.before(side[here]) for side in (since, until))
            kept_ns = -int(np.subtract(*times).sum())
            found.append(packets / kept_ns if kept_ns else 0.0)
            found.append(float((busy[other] - busy[one]).sum()) / packets if packets else 0.0)
        return found

    observed, by_chance = np.array(loads(0 * shifts[0])), np.array([loads(one) for one in shifts])
    mean, spread = by_chance.mean(axis=0), by_chance.std(axis=0)
    told = spread > 0
    if not told.any():
        return 1.0

    def far(loads: Floats) -> Floats:
        beyond = np.abs(loads - mean)[..., told] - MARGIN * mean[told]
        most: Floats = (np.maximum(beyond, 0) / spread[told]).max(axis=-1)
        return most

    return (1 + int((far(by_chance) >= far(observed)).sum())) / (1 + SHIFTS)


STOPPED = 4 | 8
"""Bits of the state in which a task left its core: __TASK_STOPPED and __TASK_TRACED of the kernel's
include/linux/sched.h."""
_STATE, _SERVED = 32, 1 << 48
FEWEST_GAPS = 2
LATE_NS = 20_000
"""A generator that sends this much later than usual was away: otherwise it waits for the moment."""
OURS = 0.5
"""This part of how late it was, and its core was this kernel's meanwhile."""
_OWN = (kinds.TASK, kinds.IRQ, kinds.VECTOR, kinds.SOFTIRQ, kinds.NMI)


@dataclass(frozen=True)
class Pauses:
    """Pauses of one kind on one CPU."""

    by: By
    cpu: int | None
    """None where that is not known."""
    spans: Spans


def of_trace(trace: Trace) -> tuple[list[Pauses], Events]:
    """The pauses that a trace tells of, and its events, by the clock of the stamps.

    Raises `InputError` when it cannot be read.
    """
    events = read_events(trace)
    found = []
    for cpu in sorted({*trace.served.cpus, *trace.record.senders}):
        mine = (events.records["cpu"] == cpu) & (events.stolen_ns > 0)
        start, length = events.stolen[mine], events.stolen_ns[mine]
        found.append(Pauses("steal", cpu, Spans.merged(start, start + length)))
    if trace.served.by == "vcpu":
        found += _stopped(trace, events)
    return [one for one in found if one.spans.start.size], events


def of_guest(trace: Trace, clock: GuestClock) -> list[Pauses]:
    """The pauses that a virtual machine's own trace tells of, by the clock of its host's stamps.

    That is what was stolen from the cores that serve there: nobody else saw it where its host was
    not traced. Raises `InputError` when it cannot be read.
    """
    found, _ = of_trace(trace)
    return [
        Pauses(one.by, None, Spans.merged(*map(clock.host_ns, (one.spans.start, one.spans.end))))
        for one in found
    ]


def _stopped(trace: Trace, events: Events) -> Iterator[Pauses]:
    """When the threads that are a virtual machine's CPUs were stopped, all of them or some."""
    records = events.records
    tasks = np.flatnonzero((records["kind"] == kinds.TASK) & (records["flags"] == 0))
    for pid in sorted(trace.served.pids):
        mine = tasks[records["id"][tasks] == pid]
        mine = mine[np.argsort(records["start"][mine], kind="stable")]
        aux = records["aux"][mine]
        halted = np.flatnonzero((aux >> np.uint64(_STATE)) & np.uint64(STOPPED))
        halted = halted[halted < mine.size - 1]
        start, end = events.end[mine[halted]], records["start"][mine[halted + 1]].astype(np.int64)
        cpus = records["cpu"][mine[halted]].tolist()
        if cpus:
            yield Pauses("stop", max(set(cpus), key=cpus.count), Spans.merged(start, end))


def of_generator(
    run: Run, ingress: Path, events: Events | None, senders: Sequence[int]
) -> list[Pauses] | None:
    """When the generator was late and, as far as is known, this kernel's work was not why.

    None where nobody knows when packets were due. `events` are those of the run's trace, and
    `senders` are the CPUs of the generator that it follows. Raises `InputError` when the stamps
    cannot be read.
    """
    due = _due(run, ingress)
    if due is None:
        return None
    due_ns, left_ns = due
    late = left_ns - due_ns
    late -= int(late.min())
    there = late > LATE_NS
    spans = Spans.merged(left_ns[there] - late[there], left_ns[there])
    if events is not None and senders:
        first = np.searchsorted(left_ns[there], spans.start)
        most = np.maximum.reduceat(late[there], first) if first.size else late[:0]
        own = _ours(events, senders)
        held = own.before(spans.end) - own.before(spans.start)
        outside = held < OURS * most
        spans = Spans(spans.start[outside], spans.end[outside])
    cpu = run.traffic.cpu if run.traffic.cpu is not None else min(senders, default=None)
    if len(run.traffic.cpus or ()) > 1:
        cpu = None  # one of several threads was late
    return [Pauses("generator", cpu, spans)] if spans.start.size else []


def _due(run: Run, ingress: Path) -> tuple[Column, Column] | None:
    """When packets were due, but for a constant, and when they passed the tap before the device."""
    rate = run.traffic.rate
    record = run.own_folder and run.own_folder / "generator.json"
    if not run.traffic.is_constant or not rate or not record or ingress.suffix != ".stamps":
        return None
    if not record.is_file():
        return None
    sent = read(record, GeneratorRecord)
    if sent.first_ns is None or sent.bunched is None:
        return None
    stamps = read_stamps(ingress)
    measured = stamps[stamps["time_ns"] >= sent.first_ns]
    if measured.size < FEWEST_GAPS:
        return None
    number = (measured["id"] - measured["id"][0]).astype(np.int64)  # a counter that goes around
    if np.any(np.diff(number) < 1):
        if measured.size != sent.sent:
            return None
        number = np.arange(measured.size)
    return number * SECOND_NS // rate, measured["time_ns"].astype(np.int64)


def _ours(events: Events, cpus: Sequence[int]) -> Spans:
    """When this kernel had some CPUs for others than whoever sends, less what was stolen then."""
    records = events.records
    own = np.isin(records["cpu"], cpus) & np.isin(records["kind"], _OWN)
    spans = Spans.merged(records["start"][own].astype(np.int64), events.end[own])
    taken = np.isin(records["cpu"], cpus) & (events.stolen_ns > 0)
    start = events.stolen[taken]
    return spans.without(Spans.merged(start, start + events.stolen_ns[taken]))
