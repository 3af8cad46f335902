"""`tailtap interrupts`: say which interrupts rise where packets are late."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailtap.cli.command import PATH, Answer, command
from tailtap.cli.options import runs_and_folders, writes_into
from tailtap.cli.terminal import say, steps, warn_of

if TYPE_CHECKING:
    from tailtap.analysis.interrupts.runs import FoundRuns


@command(
    computes=True,
    examples=(
        (
            "tailtap interrupts results/first --figures",
            "all runs that were measured with `interrupts: counters`",
        ),
        (
            "tailtap interrupts evaluated --samples irq.csv --offset '12.5 s'",
            "captures and samples of others, whose clocks are 12.5 s apart",
        ),
    ),
)
@runs_and_folders(
    "Run folders, experiment folders (all their finished runs), or what `tailtap evaluate "
    "--out` wrote."
)
@click.option(
    "--samples",
    type=PATH,
    metavar="FILE",
    help="Samples of /proc/interrupts by another recorder, for one run or evaluation: CSV as "
    "docs/explanation/interrupts.md describes it. By default the run's own interrupts.csv.",
)
@click.option(
    "--offset",
    metavar="TIME",
    help="What to add to a sample's time for the captures' time, such as '12.5 s' or '-300 ms'. "
    "By default nothing where a run sampled itself by the taps' clock; otherwise the offset that "
    "fits best, where the data can tell.",
)
@click.option(
    "--worst",
    type=click.IntRange(min=1),
    help="How many of the worst packets count as late, by default 5000 and at most 1 % of all. "
    "An evaluation keeps 5000 unless `tailtap evaluate --worst` says otherwise.",
)
@click.option(
    "--figures",
    is_flag=True,
    help="Also draw the worst packets over the counters, next to interrupts.json, as PNG, SVG and "
    "PDF.",
)
@writes_into(
    "Where interrupts.json and the figures go, in a folder for each run; by default the "
    "run's own folder."
)
def interrupts(
    runs: tuple[Path, ...],
    samples: Path | None,
    offset: str | None,
    worst: int | None,
    figures: bool,
    out: Path | None,
    json: bool,
    quiet: bool,
) -> Answer:
    """Say which interrupts rise where packets are late, as far as samples can tell.

    Runs with `interrupts: counters` sampled /proc/interrupts and /proc/softirqs. For each counter,
    its increments from sample to sample are held against the lateness of the worst packets in
    between, and both against the same packets at shifted times. A counter is associated when at
    most 1 % of the shifts do as well with any counter. The rest is only present.

    An association names no cause: everything within a window between two samples looks
    simultaneous, and what starts a stall can make counters rise that do not. Where there are too
    few windows, or the offset of the clocks is not known and the data do not show it, the answer
    is that nothing can be told. docs/explanation/interrupts.md explains the statistics.
    """

    from tailtap.analysis.interrupts import Options, interrupts_of

    progress = steps("interrupts", quiet=quiet)

    options = Options(None if offset is None else _offset(offset), worst)
    found = interrupts_of(runs, options, samples=samples, out=out, progress=progress)
    if figures:
        from tailtap.show.report.interrupts import write_interrupt_figures

        for one in found.runs:
            if one.finding.offset_ns is None:
                progress(f"{one.run.slug}: no figure without an offset of the clocks")
            else:
                write_interrupt_figures(one.finding, one.folder, below=out or one.run.top)
    return Answer(found.record, lambda: _print_runs(found))


def _print_runs(found: FoundRuns) -> None:
    from tailtap.cli.console import print_section
    from tailtap.show.sections.interrupts import interrupts_section

    for one in found.runs:
        print_section(interrupts_section(one.finding, one.run.slug))
        say()
    warn_of(found.warnings)


def _offset(text: str) -> int:
    from tailtap.base.units import parse_time

    stripped = text.strip()
    ahead = parse_time(stripped.removeprefix("-"))
    return -ahead if stripped.startswith("-") else ahead
