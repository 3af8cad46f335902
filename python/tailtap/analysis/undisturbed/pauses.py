"""When the machine under the device or the generator was taken away, as times.

A trace tells of steal, on the cores that serve and on those that send, and of the threads of a
virtual machine that were stopped; where there is none but a virtual machine's own, that tells what
was stolen from it. A generator that sends at a constant pace spins on its core until
the next packet is due, so that a packet which left late tells when it was away. Where this kernel's
own work had its core meanwhile, by the trace, nobody from outside took it: that is not left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tailtap.analysis.causes import events as kinds
from tailtap.analysis.causes.events import Events, read_events
from tailtap.analysis.causes.trace import Trace
from tailtap.analysis.clocks.guest import GuestClock
from tailtap.analysis.evaluation.settings import SECOND_NS
from tailtap.analysis.evaluation.values import Column
from tailtap.analysis.runs.run import Run
from tailtap.analysis.undisturbed.stretches import Spans
from tailtap.records.evaluation import By
from tailtap.records.generator import GeneratorRecord
from tailtap.records.record import read
from tailtap.records.stamps import read_stamps

STOPPED = 4 | 8
"""Bits of the state in which a task left its core: __TASK_STOPPED and __TASK_TRACED of the kernel's
include/linux/sched.h."""
_STATE, _SERVED = 32, 1 << 48
FEWEST = 2
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
    for cpu in sorted({*trace.served.cpus, *trace.senders}):
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
    run: Run, ingress: Path, events: Events | None, senders: tuple[int, ...]
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
    if measured.size < FEWEST:
        return None
    number = (measured["id"] - measured["id"][0]).astype(np.int64)  # a counter that goes around
    if np.any(np.diff(number) < 1):
        if measured.size != sent.sent:
            return None
        number = np.arange(measured.size)
    return number * SECOND_NS // rate, measured["time_ns"].astype(np.int64)


def _ours(events: Events, cpus: tuple[int, ...]) -> Spans:
    """When this kernel had some CPUs for others than whoever sends, less what was stolen then."""
    records = events.records
    own = np.isin(records["cpu"], cpus) & np.isin(records["kind"], _OWN)
    spans = Spans.merged(records["start"][own].astype(np.int64), events.end[own])
    taken = np.isin(records["cpu"], cpus) & (events.stolen_ns > 0)
    start = events.stolen[taken]
    return spans.without(Spans.merged(start, start + events.stolen_ns[taken]))
