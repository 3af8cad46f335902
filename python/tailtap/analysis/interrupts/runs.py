"""`interrupts_of`: the library function behind `tailtap interrupts`, for one run and many."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tailtap.analysis.clocks.host import HostClock, host_clock
from tailtap.analysis.evaluation import Evaluation, tables
from tailtap.analysis.interrupts.association import (
    LEAST_WINDOWS,
    LEVEL,
    Late,
    Suggestion,
    Windows,
    associated,
    described,
    own_effect,
    suggest,
    windows_of,
)
from tailtap.analysis.runs.reader import finished_runs
from tailtap.analysis.runs.run import Run
from tailtap.base.errors import InputError
from tailtap.base.units import format_time
from tailtap.records.interrupts import (
    FILE,
    Answer,
    CounterRow,
    InterruptsRecord,
    InterruptsRun,
    LateRow,
    OffsetRow,
    OffsetSource,
    Samples,
    SamplesRow,
    Took,
    kind_of,
    read_samples,
)
from tailtap.records.record import Notice
from tailtap.records.run import Window

"""Why an offset is what it is: one clock for both, two that were compared, somebody's word, the
data."""

WORST = 5000
"""How many of the worst packets are late, at most; as in the papers' figures."""
WORST_SHARE = 100
"""And at most every so many-th packet."""


@dataclass(frozen=True)
class Options:
    """How runs are looked at."""

    offset_ns: int | None = None
    """What to add to a sample's time for the capture's; None where only the data can tell."""
    worst: int | None = None
    """How many of the worst packets are late; by default `WORST`, and 1 % of all at most."""


@dataclass(frozen=True)
class Sampled:
    """What the samples say about the late packets of one run."""

    record: InterruptsRun
    windows: Windows
    """Those that the captures cover, on their clock; all of the samples without an offset."""
    late: Late


def analyse(
    slug: str,
    evaluation: Evaluation,
    samples: Samples,
    *,
    one_clock: bool = False,
    clock: HostClock | None = None,
    options: Options | None = None,
) -> Sampled:
    """Look for counters that rise where packets were late.

    `one_clock`: stamps and samples are of the same clock, so that nothing has to be found out.
    `clock` is that of the samples where it was compared with that of the stamps.
    """
    options = options or Options()
    late = _late(evaluation, options.worst)
    if clock is not None and options.offset_ns is None:
        return _compared(slug, evaluation, samples, clock, options)
    everywhere = windows_of(samples)
    suggestion: Suggestion | None = None
    offset: int | None
    source: OffsetSource = "given" if options.offset_ns is not None else "suggested"
    if options.offset_ns is not None:
        offset = options.offset_ns
    elif one_clock:
        offset, source = 0, "clock"
    else:
        suggestion = suggest(everywhere, late)
        offset = suggestion.best_ns if suggestion is not None and suggestion.tells else None
    windows = everywhere
    if offset is not None:
        windows = windows_of(samples, offset).within(late.first_ns, late.last_ns)
    reason = _reason(windows, late, offset, suggestion)
    counters: list[CounterRow] = []
    if offset is not None and windows.number and suggestion is not None:
        p_values = [suggestion.counters.get(name) for name in windows.names]
        counters = described(windows, late, p_values)
    elif offset is not None and reason is None:
        counters = associated(windows, late)
    elif offset is not None and windows.number:
        counters = described(windows, late)
    took = samples.took_ns
    sampler = None
    if took is not None and offset is not None:
        starts = np.array(samples.times_ns, np.int64)
        sampler = own_effect(starts + offset, np.array(took, np.int64), late)
    record = InterruptsRun(
        run=slug,
        answer=_answer(reason, counters),
        reason=reason,
        samples=SamplesRow(
            number=len(samples.times_ns),
            period_ns=windows.period_ns,
            windows=windows.number,
            took_ns=None if took is None else Took(median=int(np.median(took)), max=max(took)),
        ),
        offset=OffsetRow(
            ns=offset,
            source=source,
            best_ns=None if suggestion is None else suggestion.best_ns,
            low_ns=None if suggestion is None else suggestion.low_ns,
            high_ns=None if suggestion is None else suggestion.high_ns,
            p_value=None if suggestion is None else suggestion.p_value,
            searched_ns=None if suggestion is None else list(suggestion.searched_ns),
        ),
        late=LateRow(
            packets=len(late.ingress_ns),
            threshold_ns=int(late.latency_ns.min()) if late.latency_ns.size else 0,
        ),
        counters=counters,
        sampler=sampler,
    )
    return Sampled(record, windows, late)


def _answer(reason: str | None, counters: Sequence[CounterRow]) -> Answer:
    if reason is not None:
        return "cannot-tell"
    return "associated" if any(row.associated for row in counters) else "none"


def _compared(
    slug: str, evaluation: Evaluation, samples: Samples, clock: HostClock, options: Options
) -> Sampled:
    """What samples of another clock say, told by that of the stamps."""
    theirs = np.array(samples.times_ns, np.int64)
    ours = clock.stamps_ns(theirs)
    shown = replace(samples, times_ns=ours.tolist())
    found = analyse(slug, evaluation, shown, one_clock=True, options=options)
    middle = len(ours) // 2
    ahead = int(ours[middle] - theirs[middle])
    off = int(clock.off_ns(ours).max())
    told, took = found.record, found.record.samples.took_ns
    told.offset.ns, told.offset.source = ahead, "clocks"
    told.offset.low_ns, told.offset.high_ns = ahead - off, ahead + off
    if took is not None and 2 * off > took.median:
        told.sampler = None  # which packets met a sample cannot be seen
    if told.reason is None and 2 * off > found.windows.period_ns:
        told.answer, told.counters = "cannot-tell", described(found.windows, found.late)
        told.reason = (
            f"the clock of the samples is known to {format_time(2 * off)} only, which is longer "
            f"than the {format_time(found.windows.period_ns)} between two of them: sample less "
            "often, or bring the hosts nearer to each other"
        )
    return found


def _late(evaluation: Evaluation, worst: int | None) -> Late:
    packets = evaluation.worst_packets
    matched = evaluation.counts.matched
    most = worst if worst is not None else max(1, min(WORST, matched // WORST_SHARE))
    latency = packets.latency_ns[:most]
    median = evaluation.percentile(0.5).value
    side = evaluation.inputs.ingress
    return Late(
        packets.ingress_ns[:most],
        latency,
        np.maximum(latency - median, 0),
        side.first_ns,
        side.last_ns,
    )


def _reason(
    windows: Windows, late: Late, offset: int | None, suggestion: Suggestion | None
) -> str | None:
    if not late.excess_ns.any():
        return "no packet is later than the median"
    if offset is None:
        return _unknown_offset(suggestion)
    if not windows.number:
        return (
            "no window between two samples lies within the captures: check the offset, which is "
            "what to add to a sample's time for the captures'"
        )
    if windows.number < LEAST_WINDOWS:
        return (
            f"{windows.number} windows of {format_time(windows.period_ns)} lie within the "
            f"captures: with fewer than {LEAST_WINDOWS}, chance alone puts late packets into the "
            f"same window as any rise more often than once in {LEAST_WINDOWS}; sample more often, "
            "or for longer"
        )
    if not late.lateness(windows.bounds_ns).any():
        return "no late packet lies within the windows"
    return None


def _unknown_offset(found: Suggestion | None) -> str:
    if found is None:
        return "nothing rises in the samples, so that no offset of the clocks can be suggested"
    low, high = (format_time(ns) for ns in found.searched_ns)
    said = f"the offset of the clocks is unknown, and of all from {low} to {high} none "
    if found.windows < LEAST_WINDOWS:
        return (
            f"the offset of the clocks is unknown, and the captures are {found.windows} periods "
            f"of the samples long, of which {LEAST_WINDOWS} may tell: give it with "
            "--offset if you know it"
        )
    if found.periodic:
        return (
            "the offset of the clocks is unknown, and late packets return with a period, so that "
            "several offsets fit alike: give it with --offset if you know it"
        )
    if found.p_value > LEVEL:
        return (
            f"{said}fits better than chance (best {format_time(found.best_ns)}, "
            f"p = {found.p_value:.2g}): give it with --offset if you know it"
        )
    return (
        f"{said}is better than the others: those from {format_time(found.low_ns)} to "
        f"{format_time(found.high_ns)} fit as well; give it with --offset if you know it"
    )


NAME = "interrupts"
"""What the files of a run are called, less their suffix."""
TAPS_CLOCK = "monotonic"


@dataclass(frozen=True)
class SampledRun:
    """A run, what its samples say, and the folder that `interrupts.json` belongs to."""

    run: Run
    sampled: Sampled
    folder: Path


def interrupts_of(
    paths: Sequence[Path],
    options: Options | None = None,
    *,
    samples: Path | None = None,
    out: Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[InterruptsRecord, list[SampledRun]]:
    """Hold late packets of runs against their samples of interrupts; write `interrupts.json`.

    Gives what `tailtap interrupts --json` prints, with warnings about runs that have no samples,
    and what there is to draw.

    Each of `paths` is a run folder, an experiment folder (all its finished runs) or what
    `tailtap evaluate --out` wrote. `samples` is a file of another recorder, for one run alone.
    `interrupts.json` goes into the run's folder, or `out`/SLUG. `progress` gets a short text
    before each run. Raises `InputError` when no run of `paths` has samples, `MachineError` when
    `interrupts.json` cannot be written.
    """
    runs = [run for path in paths for run in finished_runs(path)]
    if samples is not None and len(runs) > 1:
        raise InputError(f"--samples {samples} is of one run, and these are {len(runs)}: name one")
    found: list[SampledRun] = []
    warnings: list[Notice] = []
    for run in runs:
        assert run.own_folder is not None
        file = samples or run.own_folder / FILE
        if samples is None and not file.exists():
            warnings.append(
                Notice(
                    "no-interrupts",
                    f"{run.slug}: no samples of interrupts: measure it with `interrupts: "
                    "counters`, or give those of another recorder with --samples",
                )
            )
            continue
        progress(run.slug)
        sampled = sampled_run(run, file, options, one_clock=samples is None)
        target = out / run.slug if out else run.own_folder
        tables.write(target, {}, {NAME: sampled.record}, below=out or run.top)
        found.append(SampledRun(run, sampled, target))
    if not found:
        raise InputError(warnings[0].message if warnings else "no run was given")
    return InterruptsRecord(runs=[one.sampled.record for one in found], warnings=warnings), found


def sampled_run(
    run: Run, file: Path, options: Options | None = None, *, one_clock: bool = True
) -> Sampled:
    """What the samples in `file` say about a run. Raises `InputError`.

    With `one_clock` the file is the run's own: its clock is that of the DuT's host, which is the
    taps' unless these are on another one, or cards stamped: then clocks were compared.
    """
    ingress = run.taps.get("ingress")
    by_card = ingress is not None and ingress.clock_device is not None
    shared = one_clock and (run.clock == TAPS_CLOCK or by_card)
    stored = run.stored
    given = options is not None and options.offset_ns is not None
    compared = shared and not given
    clock = host_clock(run.record, f"{file}: the samples", ingress) if compared else None
    samples = run.samples if one_clock else read_samples(file)
    return analyse(run.slug, stored, samples, one_clock=shared, clock=clock, options=options)


EACH = ("packet", "second", "run")
"""What counters are told by, besides other counters."""
LIFETIME, RUN = "lifetime", "run"


def known(run: Run) -> dict[str, float]:
    """All that was counted, by name.

    Events of the device while packets were sent, and as ``NAME (lifetime)`` those of the machine
    from before the device was built until it was gone; then interrupts and softirqs of the device
    by kind. Raises `InputError` for samples that cannot be read.
    """
    found = {
        name: float(count)
        for name, (window, event) in _events(run).items()
        if (count := window.events[event]) is not None
    }
    counts, _ = _kinds(run)
    return found | {name: float(count) for name, count in counts.items()}


def asked(run: Run) -> list[str]:
    """The events that somebody named, whether or not they could be counted."""
    return list(_events(run))


def _events(run: Run) -> dict[str, tuple[Window, str]]:
    """The window and the name in it of each event."""
    return {
        name.format(event): (window, event)
        for which, name in ((RUN, "{}"), (LIFETIME, f"{{}} ({LIFETIME})"))
        if (window := run.counters.get(which))
        for event in window.events
    }


def counted(run: Run, name: str, per: str) -> float | None:
    """How often `name` of `known` was counted in the `run`, or per ``packet``, ``second`` or
    another of them: a share.
    """
    every = known(run)
    total = every.get(name)
    if total is None or per in every:
        return total / every[per] if total is not None and every[per] else None
    return _each(run, name, total, per)


def by_packet(run: Run) -> dict[str, float]:
    """All of `known`, per packet."""
    each = ((name, _each(run, name, total, "packet")) for name, total in known(run).items())
    return {name: count for name, count in each if count is not None}


def interrupts(run: Run, per: str) -> dict[str, float]:
    """Interrupts and softirqs of the device's CPUs by kind, those that occurred at all."""
    found = ((name, counted(run, name, per)) for name in _kinds(run)[0])
    return {name: count for name, count in found if count}


def packets(run: Run) -> int | None:
    """The packets that came while it was counted: those that the tap saw, warm-up included."""
    came = run.taps["ingress"].came if "ingress" in run.taps else None
    return came or run.packets


def _each(run: Run, name: str, total: float, per: str) -> float | None:
    match per:
        case "packet":
            number = packets(run)
            return total / number if number else None
        case "second":
            seconds = _seconds(run, name)
            return total / seconds if seconds else None
        case "run":
            return total
        case _:
            return None


def _seconds(run: Run, name: str) -> float:
    if found := _events(run).get(name):
        return found[0].elapsed_ns / 1e9
    return _kinds(run)[1]


def _kinds(run: Run) -> tuple[Mapping[str, int], float]:
    """Interrupts and softirqs by kind, and the seconds that they are of.

    As they were counted with events, or else from the first to the last of their samples.
    """
    window = run.counters.get(RUN)
    if window and window.kinds:
        return window.kinds, window.elapsed_ns / 1e9
    path = (run.own_folder or Path()) / FILE
    if run.own_folder is None or not path.is_file():
        return {}, 0.0
    windows = windows_of(run.samples)
    cpus = set(run.device_cpus)
    found: dict[str, int] = {}
    for name, rises in zip(windows.names, windows.increments.sum(axis=1), strict=True):
        told = kind_of(name)
        if told is not None and (not cpus or told[0] in cpus):
            found[told[1]] = found.get(told[1], 0) + int(rises)
    return found, float(windows.bounds_ns[-1] - windows.bounds_ns[0]) / 1e9
