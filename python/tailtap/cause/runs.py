"""`explain_runs`: the library function behind `tailtap explain`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tailtap.cause.claims import claims
from tailtap.cause.control import controls
from tailtap.cause.explained import Explained
from tailtap.cause.guest import Guest, guest_of
from tailtap.cause.joined import Joined, join
from tailtap.cause.labels import Labels, label
from tailtap.cause.late import DEFAULT, late_packets, usual_packets
from tailtap.cause.periods import FEWEST, Period, periods, tick
from tailtap.cause.record import record, tables
from tailtap.cause.remedies import IN_GUEST, Knob
from tailtap.cause.segments import UNKNOWN, leaving, segments
from tailtap.cause.taxonomy import Named
from tailtap.cause.trace import Trace, load
from tailtap.errors import InputError
from tailtap.evaluation import tables as files
from tailtap.evaluation.values import Warning
from tailtap.results.reader import finished_runs
from tailtap.results.run import Run, mapping
from tailtap.units import format_time

Progress = Callable[[str], None]
LOCAL_TIMER = (2, 1, 0)
"""The owner that is the vector of the local timer."""
TICK_NS = 1_000_000_000
"""The tick is looked for in so much of a run."""


def explain_runs(
    paths: Sequence[Path],
    *,
    late: str = DEFAULT,
    knobs: Sequence[Knob] = (),
    progress: Progress = lambda _: None,
) -> list[Explained]:
    """Explain the late packets of runs, and write `causes.json` and its tables into their folders.

    Each of `paths` is a run folder or an experiment folder; of an experiment all finished runs that
    have a trace are explained. `late` is a percentile such as ``p99.9`` or a latency such as
    ``100 us``. `knobs` are those that may be named as remedies. `progress` gets a short text before
    each run. Raises `InputError` when a run has no trace or one that does not belong to it, and
    `MachineError` when a folder cannot be written.
    """
    found = []
    runs = list(traced_runs(paths))
    known = controls(runs)
    for run in runs:
        progress(run.slug)
        explained = explain(run, late=late, knobs=knobs, control=known[run.own_folder])
        assert run.own_folder is not None  # it has a trace
        files.write(run.own_folder, tables(explained), {"causes": record(explained)})
        found.append(explained)
    return found


def explain(
    run: Run,
    *,
    late: str = DEFAULT,
    knobs: Sequence[Knob] = (),
    control: Mapping[str, Any] | None = None,
) -> Explained:
    """Explain the late packets of one run; see `explain_runs`. Writes nothing.

    `control` is what `controls` says of it.
    """
    trace = load(run)
    folder = trace.events.parent
    packets = late_packets(run, late)
    guest, unknown = guest_of(folder, trace)
    usual = usual_packets(run, folder)
    ways = segments(run, trace, folder)
    joined = join(trace, packets, usual, ways, leaving(run, folder), guest)
    served = trace.served if guest is None else guest.trace.served
    servers = [way.served for way in ways] if guest is None else [served]
    side = run.stored.inputs["ingress"]
    span = max(trace.started_ns, int(side["first_ns"])), min(trace.ended_ns, int(side["last_ns"]))
    tested = claims(joined, served, span, _usual_gap(run))
    labels = label(joined, tested, servers)
    return Explained(
        run=run,
        trace=trace,
        joined=joined,
        labels=labels,
        periods=tuple(_periods(run, joined, labels, span)),
        warnings=(*_warnings(run, trace, joined), *unknown, *_of_guest(guest, joined)),
        knobs=tuple(knobs),
        met=frozenset(_met(run)),
        guest=guest,
        control=control,
    )


def _usual_gap(run: Run) -> int:
    """The time between two packets before the device that 99 in 100 gaps do not exceed, in ns."""
    gaps = run.stored.gaps("ingress")
    if not gaps.edges.size:
        return 0
    place = np.searchsorted(gaps.counts.cumsum(), 0.99 * gaps.counts.sum())
    return int(gaps.edges[place]) + gaps.width


def traced_runs(paths: Sequence[Path]) -> Iterator[Run]:
    """The runs to explain: those that are named, and those of experiments that have a trace.

    Raises `InputError` when an experiment has none.
    """
    for path in paths:
        runs = finished_runs(path)
        if (path / "run.json").is_file():
            yield from runs
            continue
        traced = [run for run in runs if run.own_folder and _has_trace(run.own_folder)]
        if not traced:
            raise InputError(
                f"{path}: no run of it has a trace: measure with `trace: thin` in the experiment "
                "file, or --set trace=thin"
            )
        yield from traced


def _has_trace(folder: Path) -> bool:
    return (folder / "trace.events").is_file()


def _periods(
    run: Run, joined: Joined, labels: Labels, span: tuple[int, int]
) -> Iterator[tuple[Named | None, Period]]:
    """The periods of all stalls, and of those of each cause."""
    traffic = mapping(run.parameters, "traffic")
    constant = traffic.get("pattern", "constant") == "constant"
    side = run.stored.inputs["ingress"]
    length = int(side["last_ns"]) - int(side["first_ns"])
    packet_hz = (int(side["packets"]) - 1) / length * 1e9 if constant and length > 0 else None
    tick_hz = _tick(joined, span)
    for period in periods(joined.stall_start, span, packet_hz, tick_hz):
        yield None, period
    names = joined.rows.names
    for row in labels.rows:
        if row.is_cause and row.name in names and row.stalls >= FEWEST:
            of_row = joined.stall_row == names.index(row.name)
            for period in periods(joined.stall_start[of_row], span, packet_hz, tick_hz)[:1]:
                yield row.name, period


def _tick(joined: Joined, span: tuple[int, int]) -> float | None:
    """The frequency of the tick on the first serving core that shows one."""
    timers = [number for number, owner in enumerate(joined.cores.owners) if owner == LOCAL_TIMER]
    until = min(span[1], span[0] + TICK_NS)
    for cpu in sorted({int(cpu) for cpu in joined.cpu} - {UNKNOWN}):
        starts = joined.cores.starts(cpu, timers, span[0], until)
        if found := tick(np.frombuffer(starts, np.int64)):
            return found
    return None


def _warnings(run: Run, trace: Trace, joined: Joined) -> Iterator[Warning]:
    """What keeps packets unexplained."""
    notes = joined.notes
    records, rest, damaged = notes["records"], notes["rest"], notes["damaged_at"]
    if damaged is not None:
        yield Warning(
            "trace-damaged",
            f"{trace.events.name} is damaged at byte {damaged:,}: what stands behind is not known",
        )
    elif rest or (trace.records is not None and records < trace.records):
        stated = "" if trace.records is None else f" of {trace.records:,}"
        yield Warning(
            "trace-damaged",
            f"{trace.events.name} is cut off: it holds {records:,}{stated} records; what came "
            "later is not known",
        )
    lost = {cpu: count for cpu, count in notes["lost"].items() if cpu in trace.served.cpus}
    if lost:
        cores = ", ".join(f"{count:,} on CPU {cpu}" for cpu, count in sorted(lost.items()))
        yield Warning(
            "trace-lost",
            f"the tracer had no room for {cores}: packets of that time are not explained",
        )
    packets = joined.late.packets
    outside = (packets.ingress_ns < trace.started_ns) | (packets.egress_ns > trace.ended_ns)
    if outside.any():
        yield Warning(
            "trace-not-covering",
            f"{int(outside.sum()):,} late packets passed before the trace began or after it ended",
        )
    unknown = ~np.isin(joined.cpu, trace.served.cpus)
    if unknown.any():
        cpus = sorted({int(cpu) for cpu in joined.cpu[unknown]} - {UNKNOWN})
        where = f"left on CPUs {', '.join(map(str, cpus))}" if cpus else "do not say their core"
        yield Warning(
            "served-elsewhere",
            f"{int(unknown.sum()):,} late packets {where}, but packets should be served on "
            f"{', '.join(map(str, trace.served.cpus))}",
        )


def _of_guest(guest: Guest | None, joined: Joined) -> Iterator[Warning]:
    """What keeps the guest's part unexplained."""
    notes = joined.guest_notes
    if guest is None or notes is None:
        return
    if notes["damaged_at"] is not None or notes["rest"]:
        yield Warning(
            "trace-damaged",
            f"{guest.trace.events.name} is damaged or cut off behind {notes['records']:,} records: "
            "what the guest did later is not known",
        )
    if lost := sum(notes["lost"].values()):
        yield Warning(
            "trace-lost",
            f"the tracer in the guest had no room for {lost:,} records: what the guest did then is "
            "not known",
        )
    if joined.coarse:
        late = joined.state.size
        yield Warning(
            "guest-clock-coarse",
            f"the guest's clock is known to {format_time(guest.clock.width_ns)}, which is no small "
            f"part of the excess of {joined.coarse:,} of {late:,} late packets: of these only the "
            "host's part is told",
        )


def _met(run: Run) -> Iterator[str]:
    """The knobs that the run's audits found as they should be, on the machine and in its guest."""
    audits = {"": mapping(run.record, "tuning"), IN_GUEST: mapping(_platform(run), "tuning")}
    for where, tuning in audits.items():
        audit = mapping(tuning, "audit")
        for name in audit:
            if mapping(audit, name).get("answer") == "met":
                yield f"{where}{name}"


def _platform(run: Run) -> Mapping[str, Any]:
    return mapping(run.record, "platform")
