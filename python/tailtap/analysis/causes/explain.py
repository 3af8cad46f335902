"""Why the late packets of one run were late."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tailtap.analysis.causes.claims import FEWEST, claims, periods, tick
from tailtap.analysis.causes.guest import Guest, guest_of
from tailtap.analysis.causes.joined import BEHIND, Joined, join
from tailtap.analysis.causes.labels import DEFAULT_P, Labels, Removal, held_from_threads, label
from tailtap.analysis.causes.late import (
    DEFAULT,
    FEW,
    UNKNOWN,
    Late,
    flows_of,
    kept,
    late_packets,
    leaving,
    lower,
    percentile_of,
    segments,
    usual_packets,
)
from tailtap.analysis.causes.remedies import Situation, trials_of
from tailtap.analysis.causes.taxonomy import Named
from tailtap.analysis.causes.trace import Trace, load, too_coarse
from tailtap.analysis.evaluation.values import Column
from tailtap.analysis.runs.run import Run
from tailtap.base.errors import InputError
from tailtap.base.units import format_count, format_share, format_time, list_cpus
from tailtap.records.causes import Control, Period
from tailtap.records.machine import Tuning
from tailtap.records.record import Notice

if TYPE_CHECKING:
    from tailtap.records.search import KnobTrial


@dataclass(frozen=True)
class Explained:
    """A run, and why its late packets were late."""

    run: Run
    trace: Trace
    joined: Joined
    labels: Labels
    periods: tuple[Period, ...]
    warnings: tuple[Notice, ...]
    here: Situation
    """Where it was measured: what can be set there."""
    guest: Guest | None = None
    """The guest that was traced as well."""
    looked: Late | None = None
    """The packets by which coincidences were tested, where the late ones are of few stalls."""
    looked_stalls: int = 0
    removal: Removal | None = None
    """What is left of the tail without some causes."""
    control: Control | None = None
    """What the trace cost (`control.controls`); None where nothing says it."""

    @cached_property
    def behind(self) -> Column:
        """How many late packets were behind each stall."""
        return self.joined.of_stalls(BEHIND)

    @cached_property
    def flows(self) -> Sequence[str]:
        """The flow of each late packet; empty where nobody says it."""
        return flows_of(self.run, self.joined.late.packets, self.trace.events.parent)

    @cached_property
    def keys(self) -> Mapping[tuple[int, int], str]:
        """The keys of the worst packets, by ingress stamp and latency in ns."""
        worst = self.run.stored.worst()
        return {(packet.ingress_ns, packet.latency): packet.key for packet in worst}


LOCAL_TIMER = (2, 1, 0)
"""The owner that is the vector of the local timer."""
TICK_NS = 1_000_000_000
"""The tick is looked for in so much of a run."""


def explain(
    run: Run,
    *,
    late: str = DEFAULT,
    control: Control | None = None,
) -> Explained:
    """Explain the late packets of one run; see `explain_many`. Writes nothing.

    `control` is what `controls` says of it.
    """
    trace = load(run)
    folder = trace.events.parent
    packets = late_packets(run, late)
    _require_clock(run, trace, packets)
    guest, unknown = guest_of(folder, trace)
    usual = usual_packets(run, folder, trace.clocks)
    ways = segments(run, trace, folder)
    joined = join(trace, packets, usual, ways, leaving(run, folder), guest)
    served = trace.served if guest is None else guest.trace.served
    servers = [way.served for way in ways] if guest is None else [served]
    side = run.stored.inputs.ingress
    began, ended = trace.span_ns
    span = max(began, side.first_ns), min(ended, side.last_ns)
    looked = lower(run, packets) if joined.stall_cpu.size < FEW else None
    evidence = joined
    if looked is not None:
        evidence = join(trace, looked, usual, ways, leaving(run, folder), guest, laid=joined.laid)
    tested = claims(evidence, served, span, _usual_gap(run))
    in_guest = guest is not None
    trials, p, unread = trials_of(run)
    taken = held_from_threads(evidence, trace)
    labels = label(joined, tested, servers, guest=in_guest, taken=taken)
    known = join(
        trace, kept(run, packets), usual, ways, leaving(run, folder), guest, laid=joined.laid
    )
    blamed = label(known, tested, servers, guest=in_guest, taken=taken)
    return Explained(
        run=run,
        trace=trace,
        joined=joined,
        labels=labels,
        periods=tuple(_periods(run, joined, labels, span)),
        warnings=(*_warnings(run, trace, joined), *unknown, *_of_guest(guest, joined), *unread),
        here=situation(run, trace, trials, p),
        guest=guest,
        looked=looked,
        looked_stalls=int(evidence.stall_cpu.size),
        removal=Removal(run, known, blamed, percentile_of(late) or DEFAULT_P),
        control=control,
    )


def _require_clock(run: Run, trace: Trace, late: Late) -> None:
    """Raises `InputError` unless some late packet can be joined with another machine's trace."""
    excess = late.excess_ns
    if trace.clock is None or not excess.size:
        return
    if too_coarse(trace.clock, late.packets.egress_ns, excess).all():
        raise InputError(
            f"the clocks of stamps and trace are known to {format_time(trace.clock.width_ns)}, "
            f"too coarse to explain packets up to {format_time(int(excess.max()))} later than the "
            "median: bring the hosts nearer to each other (docs/howto/testbed.md, Clocks), or "
            "measure on one machine"
        ).at(run.slug)


def _usual_gap(run: Run) -> int:
    """The time between two packets before the device that 99 in 100 gaps do not exceed, in ns."""
    gaps = run.stored.gaps("ingress")
    if not gaps.edges.size:
        return 0
    place = np.searchsorted(gaps.counts.cumsum(), 0.99 * gaps.counts.sum())
    return int(gaps.edges[place]) + gaps.width


def _periods(run: Run, joined: Joined, labels: Labels, span: tuple[int, int]) -> Iterator[Period]:
    constant = run.traffic.is_constant
    side = run.stored.inputs.ingress
    length = side.last_ns - side.first_ns
    packet_hz = (side.packets - 1) / length * 1e9 if constant and length > 0 else None
    tick_hz = _tick(joined, span)
    for period in periods(joined.stall_start, span, packet_hz, tick_hz):
        yield _named(period, None)
    names = joined.laid.rows.names
    for row in labels.rows:
        name = Named(row.cause, row.detail)
        if row.is_cause and name in names and row.stalls >= FEWEST:
            of_row = joined.stall_row == names.index(name)
            for period in periods(joined.stall_start[of_row], span, packet_hz, tick_hz)[:1]:
                yield _named(period, name)


def _named(period: Period, name: Named | None) -> Period:
    if name is not None:
        period.cause, period.detail = name
    known = f", {period.words}" if period.words else ""
    period.words = f"{name or 'all stalls'}: every {format_time(period.period_ns)}{known}"
    return period


def _tick(joined: Joined, span: tuple[int, int]) -> float | None:
    """The frequency of the tick on the first serving core that shows one."""
    cores = joined.laid.cores
    timers = [number for number, owner in enumerate(cores.owners) if owner == LOCAL_TIMER]
    until = min(span[1], span[0] + TICK_NS)
    for cpu in sorted({int(cpu) for cpu in joined.cpu} - {UNKNOWN}):
        starts = cores.starts(cpu, timers, span[0], until)
        if found := tick(np.frombuffer(starts, np.int64)):
            return found
    return None


def _warnings(run: Run, trace: Trace, joined: Joined) -> Iterator[Notice]:
    notes = joined.laid.notes
    records, rest, damaged = notes["records"], notes["rest"], notes["damaged_at"]
    if damaged is not None:
        yield Notice(
            "trace-damaged",
            f"{trace.events.name} is damaged at byte {damaged:,}: later packets are unexplained",
        )
    elif rest or (trace.record.records is not None and records < trace.record.records):
        stated = "" if trace.record.records is None else f" of {trace.record.records:,}"
        yield Notice(
            "trace-damaged",
            f"{trace.events.name} is cut off: it holds {records:,}{stated} records; later packets "
            "are unexplained",
        )
    if trace.record.paused_ns:
        part = 1 - trace.record.paused_ns / max(1, trace.record.ended_ns - trace.record.started_ns)
        yield Notice(
            "trace-thinned",
            f"the tracer recorded {format_share(part, 3)} of the time, to keep its budget: "
            "packets of other times are unexplained",
        )
    lost = {
        cpu: count for cpu, count in notes["lost"].items() if count and cpu in trace.served.cpus
    }
    if lost:
        cores = ", ".join(f"{count:,} on CPU {cpu}" for cpu, count in sorted(lost.items()))
        yield Notice(
            "trace-lost",
            f"the tracer had no room for {cores}: packets of that time are unexplained",
        )
    packets = joined.late.packets
    if joined.unseen is not None:
        unseen = joined.unseen
        tasks = joined.laid.watched.tasks(joined.cpu[unseen], joined.stays.egress_ns[unseen])
        had = f" while {', '.join(tasks)} had the core" if tasks else ""
        yield Notice(
            "trace-blind",
            f"{_unexplained(unseen)} left{had}, and no softirq was recorded, as the kernel did not "
            "run the tracer's programs",
        )
    began, ended = trace.span_ns
    outside = (packets.ingress_ns < began) | (packets.egress_ns > ended)
    if outside.any():
        yield Notice(
            "trace-not-covering",
            f"{_unexplained(outside)} passed before the trace began or after it ended",
        )
    if joined.untold is not None and joined.untold.any():
        assert trace.clock is not None
        yield Notice(
            "host-clock-coarse",
            f"the clock of the DuT's host, known to {format_time(trace.clock.width_ns)}, is too "
            f"coarse to explain {int(joined.untold.sum()):,} of {joined.untold.size:,} late "
            "packets",
        )
    unknown = ~np.isin(joined.cpu, trace.served.cpus)
    if unknown.any():
        cpus = sorted({int(cpu) for cpu in joined.cpu[unknown]} - {UNKNOWN})
        where = f"left on CPUs {', '.join(map(str, cpus))}" if cpus else "left on unknown CPUs"
        yield Notice(
            "served-elsewhere",
            f"{_unexplained(unknown)} {where}, and the device serves packets on "
            f"{', '.join(map(str, trace.served.cpus))}",
        )


def _unexplained(packets: npt.NDArray[np.bool_]) -> str:
    """How many late packets have no cause, and the subject of why."""
    many = int(packets.sum())
    verb, subject = ("is", "it") if many == 1 else ("are", "they")
    return f"{format_count(many, 'late packet')} {verb} unexplained: {subject}"


def _of_guest(guest: Guest | None, joined: Joined) -> Iterator[Notice]:
    notes = joined.laid.guest_notes
    if guest is None or notes is None:
        return
    if notes["damaged_at"] is not None or notes["rest"]:
        yield Notice(
            "trace-damaged",
            f"{guest.trace.events.name} is damaged or cut off behind {notes['records']:,} records: "
            "later work of the guest is not recorded",
        )
    if lost := sum(notes["lost"].values()):
        yield Notice(
            "trace-lost",
            f"the tracer in the guest had no room for {lost:,} records: the guest's work of that "
            "time is not recorded",
        )
    if joined.coarse:
        late = joined.state.size
        yield Notice(
            "guest-clock-coarse",
            f"the guest's clock, known to {format_time(guest.clock.width_ns)}, is too coarse for "
            f"{joined.coarse:,} of {late:,} late packets: the host alone explains these",
        )


def situation(run: Run, trace: Trace, trials: Sequence[KnobTrial], p: float) -> Situation:
    """Where a run was measured: what its audits answered, on the machine and in its guest.

    `trials` are those of knobs at the percentile `p` that its experiment made.
    """
    tuning, senders = run.record.tuning if run.record else None, trace.record.senders
    links = run.record.links if run.record else ()
    cards = {card for link in links for card in link.cards or ()}
    return Situation(
        _answers(tuning),
        _answers(run.platform_facts.tuning),
        frozenset(cards),
        _purpose(tuning) if tuning else "",
        f"--cpus {list_cpus(senders)} --role generator" if senders else "",
        tuple(trials),
        p,
    )


def _purpose(tuning: Tuning) -> str:
    """What the machine was judged for, as the options of `tailtap host`."""
    given = [f"--cpus {tuning.cpus}", f"--role {tuning.role}"]
    return " ".join([*given, *(f"--interface {name}" for name in tuning.interfaces)])


def _answers(tuning: Tuning | None) -> Mapping[str, str] | None:
    return ({name: row.answer for name, row in tuning.audit.items()} or None) if tuning else None
