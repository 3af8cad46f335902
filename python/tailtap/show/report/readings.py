"""Tables of what was read during runs: taps, generator, host, events, energy, counters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tailtap.analysis.evaluation.model import SIDES
from tailtap.analysis.interrupts.association import Integers
from tailtap.analysis.interrupts.runs import sampled_run
from tailtap.analysis.runs.groups import Configuration, Member, listed
from tailtap.analysis.runs.run import Run
from tailtap.analysis.runs.text import count_text, share_text, time_text
from tailtap.analysis.undisturbed import stored_of
from tailtap.analysis.verdict.evidence import span
from tailtap.base.errors import InputError
from tailtap.records.datapath import Generator, Slip, Tap
from tailtap.records.interrupts import FILE
from tailtap.records.record import Notice
from tailtap.records.run import Energy, Event, Passed
from tailtap.show.report.tables import Cells, mark_of, of_runs
from tailtap.show.sections import COUNT, DASH, TIME, Cell, Column, Section, Table, same
from tailtap.show.sections.machine import interrupts_section

TAP_COUNTS = ("seen", "stored", "lost", "other")
MOST = 30
"""So many events of a run have rows of their own; of more the ones that blocked longest."""
COUNTER_WINDOWS: Mapping[str, str] = {
    "run": "while packets were sent",
    "lifetime": "from before the device was built until it was gone",
}
COUNTER_SCOPES: Mapping[str, str] = {
    "dut.cpus": "the device's CPUs",
    "group": "its control group, on CPUs",
    "machine": "all CPUs",
}


WATTS, JOULES = same("{:,.1f}\u00a0W".format), same("{:,.1f}\u00a0J".format)


def taps(groups: Sequence[Configuration]) -> Table:
    """The reports of taps and generator, without the columns that tell nothing."""
    columns = (
        *(
            Column(name, COUNT, group=side, alarms=name == "lost")
            for side in ("tap before", "tap after")
            for name in TAP_COUNTS
        ),
        Column("by", group="generator"),
        Column("sent", COUNT, group="generator"),
        Column("failed", COUNT, group="generator", alarms=True),
        *(Column(name, TIME, group="slip") for name in ("p50", "p99.9", "max")),
        Column("steal", TIME, group="host"),
        Column("dropped", COUNT, group="host", alarms=True),
        Column("squeezed", COUNT, group="host"),
    )

    def cells(member: Member) -> Iterator[Cells]:
        if member.run.taps or member.run.generator:
            yield _of_taps(member.run)

    return of_runs("taps and generator", columns, groups, cells).without(0, None)


def _of_taps(run: Run) -> Cells:
    reports = [run.taps.get(side, Tap()) for side in SIDES]
    generator = run.generator or Generator()
    slip = generator.slip_ns or Slip()
    values = {one.p: one.value for one in slip.percentiles}
    by = ", ".join(part for part in (generator.generator, generator.mode) if part)
    return [
        *(getattr(tap, name) for tap in reports for name in TAP_COUNTS),
        by or None,
        generator.sent,
        generator.failed,
        values.get(0.5),
        values.get(0.999),
        slip.max,
        sum(run.steal_ns.values()) if run.steal_ns else None,
        _backlog(run, "dropped"),
        _backlog(run, "squeezed"),
    ]


def _backlog(run: Run, name: str) -> Cell:
    """A counter of softnet over all CPUs, and how much of it came on which one."""
    softnet = run.record.softnet if run.record else {}
    known = {cpu: counts[name] for cpu, counts in softnet.items() if name in counts}
    hint = ", ".join(f"CPU {cpu}: {count_text(count)}" for cpu, count in known.items() if count)
    return Cell(sum(known.values()) if known else None, hint=hint)


def counters(groups: Sequence[Configuration]) -> Table:
    """What processors counted, a row for each of `COUNTER_WINDOWS`; a dash where nothing counts.

    Events are in the order of the request.
    """
    runs = [member.run for group in groups for member in group.members]
    windows = (run.counters["run"] for run in runs if "run" in run.counters)
    names = list(dict.fromkeys(name for window in windows for name in window.events))

    def cells(member: Member) -> Iterator[Cells]:
        for name, words in COUNTER_WINDOWS.items():
            if (window := member.run.counters.get(name)) is None:
                continue
            where = f"{COUNTER_SCOPES[window.scope]}: {', '.join(map(str, window.cpus))}"
            counts = {name: count for name, count in window.events.items() if count is not None}
            about = {
                name: f"about {count_text(counts[name])}"
                for name in window.estimated
                if name in counts
            }
            events = (about.get(name, counts.get(name)) for name in names)
            yield words, where, *events

    columns = Column("when"), Column("where"), *(Column(name, COUNT) for name in names)
    return of_runs("counters of processors", columns, groups, cells)


def energy(groups: Sequence[Configuration]) -> Table:
    """Latencies, then power: of processors and memory, by domain, and of the machine by IPMI."""
    told = [one.run.energy for group in groups for one in group.members if one.run.energy]
    domains = list(dict.fromkeys(name for energy in told for name in energy.energy_uj))
    whole = any(energy.platform_watts for energy in told)
    platform = [Column("machine (IPMI)", right=True)] if whole else []
    columns = (
        Column("p50", TIME),
        Column("p99.9", TIME),
        Column("max", TIME),
        Column("power", WATTS),
        *(Column(name, WATTS) for name in domains),
        Column("energy", JOULES),
        *platform,
    )

    def cells(member: Member) -> Iterator[Cells]:
        energy, evaluation = member.run.energy, member.evaluation
        if not energy:
            return
        rows = (listed(evaluation, p) for p in (0.5, 0.999))
        total, power = energy.watts, energy.watts_by_domain
        yield (
            *(one.value if one is not None and one.supported else None for one in rows),
            Cell(evaluation.max, "max"),
            total,
            *map(power.get, domains),
            None if total is None else total * energy.elapsed_ns / 1e9,
            *([_platform(energy)] if platform else []),
        )

    return of_runs("energy", columns, groups, cells)


def _platform(energy: Energy) -> str | None:
    if (watts := energy.platform_watts) is None:
        return None
    before, after = (
        DASH if value is None else f"{value}\u00a0W" for value in (watts.before, watts.after)
    )
    return f"{before} before, {after} after"


def events(groups: Sequence[Configuration]) -> Table:
    """The events of every run, and the run's other time."""
    columns = (
        Column("event"),
        *(Column(name, right=True) for name in ("at", "took", "blocked")),
        Column("packets", COUNT),
        Column("lost", right=True),
        *(Column(name, TIME) for name in ("p50", "p99", "p99.9", "max")),
    )
    return of_runs("events", columns, groups, lambda member: _events(member.run))


def moments(run: Run) -> list[tuple[float, float]]:
    """Begin and end of each event, in s since the first packet; of one without an end its begin."""
    found = []
    for event in run.record.events if run.record is not None else ():
        if event.after_ns is not None:
            took = 0 if event.end_ns is None else event.end_ns - event.begin_ns
            found.append((event.after_ns / 1e9, (event.after_ns + took) / 1e9))
    return found


def _events(run: Run) -> Iterator[Cells]:
    if run.record is None or not run.record.events:
        return
    told = [event for event in run.record.events if event.around is not None]
    longest = sorted(told, key=_blocked_ns, reverse=True)[:MOST]
    for event in (one for one in told if one in longest):
        off = f" ± {time_text(event.within_ns)}" if event.within_ns else ""
        yield (
            Cell(event.name, "" if event.status == 0 else "alarm"),
            f"{time_text(event.after_ns or 0)}{off}",
            None if event.end_ns is None else time_text(event.end_ns - event.begin_ns),
            None if event.blocked is None else span(event.blocked),
            *_passed(event.around),
        )
    if run.record.beside_events is not None:
        yield "other time", None, None, None, *_passed(run.record.beside_events)


def _blocked_ns(event: Event) -> int:
    return 0 if event.blocked is None else event.blocked.most_ns or event.blocked.least_ns


def _passed(passed: Passed | None) -> Cells:
    if passed is None:
        return [None] * 6
    share = f" ({share_text(passed.lost / passed.packets)})" if passed.lost else ""
    values = {one.p: one.value for one in passed.percentiles if one.supported}
    return [
        passed.packets,
        Cell(f"{count_text(passed.lost)}{share}", "alarm" if passed.lost else ""),
        *map(values.get, (0.5, 0.99, 0.999)),
        Cell(passed.max_ns, "max"),
    ]


STRIP, HIGH = 480, 20
"""The size of a strip, in the units of its own drawing."""


def sampled_of(
    groups: Sequence[Configuration], progress: Callable[[str], None] = lambda _: None
) -> list[Section]:
    """The sampled run of each configuration, the worst valid repeat where several were sampled."""
    found = []
    for group in groups:
        member = group.example([one for one in group.members if _is_sampled(one)])
        if member is None:
            continue
        progress(f"which interrupts rose where packets of {member.run.slug} were late")
        found.append(_sampled_run(group, member))
    return found


def _is_sampled(member: Member) -> bool:
    folder = member.run.own_folder
    return folder is not None and (folder / FILE).is_file()


def _sampled_run(group: Configuration, member: Member) -> Section:
    folder, mark = member.run.own_folder, mark_of(group)
    assert folder is not None
    try:
        sampled = sampled_run(member.run, folder / FILE)
    except InputError as error:
        return Section(member.label, [str(error)], mark=mark)
    return interrupts_section(sampled, member.label, strip, mark)


def strip(values: Integers) -> str:
    """The outline of some values, from 0 to the largest, as the path of an SVG of `STRIP`, `HIGH`.

    Of more values than the strip is wide, each column shows the largest of its share.
    """
    if not values.size or not values.any():
        return ""
    starts = np.unique(np.arange(min(values.size, STRIP)) * values.size // min(values.size, STRIP))
    tops = np.maximum.reduceat(values, starts)
    edges = np.append(starts, values.size) * STRIP / values.size
    heights = HIGH - tops * (HIGH - 1) / tops.max()
    steps = "".join(
        f"V{height:.1f}H{edge:.1f}" for height, edge in zip(heights, edges[1:], strict=True)
    )
    return f"M0 {HIGH}{steps}V{HIGH}Z"


def with_undisturbed(
    groups: Sequence[Configuration],
) -> tuple[list[Configuration], list[Notice]]:
    """The same configurations, whose members have what `tailtap explain` stored of them.

    A warning for each of which that cannot be read.
    """
    damage: list[Notice] = []
    return [
        replace(group, members=tuple(_beside(member, damage) for member in group.members))
        for group in groups
    ], damage


def _beside(member: Member, damage: list[Notice]) -> Member:
    try:
        found = stored_of(member.run)
    except InputError as error:
        damage.append(Notice("file-damaged", str(error)))
        return member
    if found is None or not found.record.stretches:
        return member
    return replace(member, undisturbed=found.evaluation, left_out=found.record.words)
