"""`interrupts_of`: the library function behind `tailtap interrupts`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tailtap.analysis.clocks.host import host_clock
from tailtap.analysis.evaluation import tables
from tailtap.analysis.interrupts.analysis import Finding, Options, analyse
from tailtap.analysis.interrupts.windows import windows_of
from tailtap.analysis.runs.reader import finished_runs
from tailtap.analysis.runs.run import Run
from tailtap.base.errors import InputError
from tailtap.records.interrupts import FILE, InterruptsRecord, kind_of, read_samples
from tailtap.records.record import Notice
from tailtap.records.run import Window

NAME = "interrupts"
"""What the files of a finding are called, less their suffix."""
TAPS_CLOCK = "monotonic"


@dataclass(frozen=True)
class Found:
    """A run, what its samples say, and the folder that `interrupts.json` belongs to."""

    run: Run
    finding: Finding
    folder: Path


@dataclass(frozen=True)
class FoundRuns:
    """The findings of some runs; `warnings` are about runs that have no samples."""

    runs: tuple[Found, ...]
    warnings: tuple[Notice, ...]

    @property
    def record(self) -> InterruptsRecord:
        """What `tailtap interrupts --json` prints."""
        return InterruptsRecord(
            runs=[found.finding.record for found in self.runs], warnings=list(self.warnings)
        )


def interrupts_of(
    paths: Sequence[Path],
    options: Options | None = None,
    *,
    samples: Path | None = None,
    out: Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> FoundRuns:
    """Hold late packets of runs against their samples of interrupts; write `interrupts.json`.

    Each of `paths` is a run folder, an experiment folder (all its finished runs) or what
    `tailtap evaluate --out` wrote. `samples` is a file of another recorder, for one run alone.
    `interrupts.json` goes into the run's folder, or `out`/SLUG. `progress` gets a short text
    before each run. Raises `InputError` when no run of `paths` has samples, `MachineError` when
    `interrupts.json` cannot be written.
    """
    runs = [run for path in paths for run in finished_runs(path)]
    if samples is not None and len(runs) > 1:
        raise InputError(f"--samples {samples} is of one run, and these are {len(runs)}: name one")
    found: list[Found] = []
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
        finding = finding_of(run, file, options, one_clock=samples is None)
        target = out / run.slug if out else run.own_folder
        tables.write(target, {}, {NAME: finding.record}, below=out or run.top)
        found.append(Found(run, finding, target))
    if not found:
        raise InputError(warnings[0].message if warnings else "no run was given")
    return FoundRuns(tuple(found), tuple(warnings))


def finding_of(
    run: Run, file: Path, options: Options | None = None, *, one_clock: bool = True
) -> Finding:
    """What the samples in `file` say about a run. Raises `InputError`.

    With `one_clock` the file is the run's own: its clock is that of the DuT's host, which is the
    taps' unless these are on another one, or cards stamped.
    """
    shared = one_clock and run.clock == TAPS_CLOCK
    stored = run.stored
    given = options is not None and options.offset_ns is not None
    clock = host_clock(run.record, f"{file}: the samples") if shared and not given else None
    samples = read_samples(file)
    return analyse(run.slug, stored, samples, one_clock=shared, clock=clock, options=options)


Per = Literal["packet", "second", "run"]
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
    found = {}
    for which, name in ((RUN, "{}"), (LIFETIME, f"{{}} ({LIFETIME})")):
        if window := run.counters.get(which):
            found.update({name.format(event): (window, event) for event in window.events})
    return found


def counted(run: Run, name: str, per: Per) -> float | None:
    """How often `name` of `known` was counted in the `run`, or per ``packet`` or ``second``."""
    total = known(run).get(name)
    return None if total is None else _each(run, name, total, per)


def by_packet(run: Run) -> dict[str, float]:
    """All of `known`, per packet."""
    each = ((name, _each(run, name, total, "packet")) for name, total in known(run).items())
    return {name: count for name, count in each if count is not None}


def interrupts(run: Run, per: Per) -> dict[str, float]:
    """Interrupts and softirqs of the device's CPUs by kind, those that occurred at all."""
    found = ((name, counted(run, name, per)) for name in _kinds(run)[0])
    return {name: count for name, count in found if count}


def packets(run: Run) -> int | None:
    """The packets that came while it was counted: those that the tap saw, warm-up included."""
    came = run.taps["ingress"].came if "ingress" in run.taps else None
    return came or run.packets


def _each(run: Run, name: str, total: float, per: Per) -> float | None:
    match per:
        case "packet":
            number = packets(run)
            return total / number if number else None
        case "second":
            seconds = _seconds(run, name)
            return total / seconds if seconds else None
        case "run":
            return total


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
    windows = windows_of(read_samples(path))
    cpus = set(run.device_cpus)
    found: dict[str, int] = {}
    for name, rises in zip(windows.names, windows.increments.sum(axis=1), strict=True):
        told = kind_of(name)
        if told is not None and (not cpus or told[0] in cpus):
            found[told[1]] = found.get(told[1], 0) + int(rises)
    return found, float(windows.bounds_ns[-1] - windows.bounds_ns[0]) / 1e9
