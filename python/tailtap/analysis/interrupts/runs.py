"""`interrupts_of`: the library function behind `tailtap interrupts`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tailtap.analysis.clocks.host import host_clock
from tailtap.analysis.evaluation import tables
from tailtap.analysis.interrupts.analysis import Finding, Options, analyse
from tailtap.analysis.runs.reader import finished_runs
from tailtap.analysis.runs.run import Run
from tailtap.base.errors import InputError
from tailtap.records.interrupts import FILE, InterruptsRecord, read_samples
from tailtap.records.record import Notice

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
        assert run.own_folder is not None  # finished runs are not imported
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
    if run.evaluation is None or run.evaluation.stored is None:
        raise InputError(run.failure or "it has no evaluation").at(run.slug)
    shared = one_clock and run.clock == TAPS_CLOCK
    stored = run.evaluation.stored
    given = options is not None and options.offset_ns is not None
    clock = host_clock(run.record, f"{file}: the samples") if shared and not given else None
    samples = read_samples(file)
    return analyse(run.slug, stored, samples, one_clock=shared, clock=clock, options=options)
