"""`tailtap interrupts`: say which interrupts rise where packets are late."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailtap.cli.command import PATH, Answer, command
from tailtap.cli.options import runs_and_folders, writes_into
from tailtap.cli.terminal import say, steps, warn_of

if TYPE_CHECKING:
    from tailtap.analysis.interrupts.analysis import Finding
    from tailtap.analysis.interrupts.runs import FoundRuns

SHOWN = 10
"""Rows of the table that are not associated; --json has all."""


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
    for one in found.runs:
        _print(one.finding)
    warn_of(found.warnings)


def _offset(text: str) -> int:
    from tailtap.base.units import parse_time

    stripped = text.strip()
    ahead = parse_time(stripped.removeprefix("-"))
    return -ahead if stripped.startswith("-") else ahead


def _print(found: Finding) -> None:
    from tailtap.base.units import format_time
    from tailtap.cli.console import Column, Table, columns

    period = format_time(found.windows.period_ns)
    took = ""
    if found.took_ns is not None:
        took = ", each taking {} (at most {})".format(*map(format_time, found.took_ns))
    say(f"{found.slug}: {found.samples} samples, one each {period}{took}")
    if found.offset_ns is not None and found.source != "clock":
        say(f"offset of the clocks: {format_time(found.offset_ns)}{_uncertainty(found)}")
    if found.reason is not None:
        say(f"cannot tell: {found.reason}")
    elif found.answer == "none":
        say("no counter rises where packets are late, more than chance explains")
    if found.counters:
        table = Table(
            (
                Column("counter", wrap=16),
                *columns(("where late", "elsewhere", "p", ""), right=True),
            ),
            title="increments a second",
        )
        sure = sum(row.associated for row in found.counters)
        for row in found.counters[: max(sure, SHOWN)]:
            table.add(
                row.name,
                f"{row.late_per_s:,.1f}",
                f"{row.elsewhere_per_s:,.1f}",
                "" if row.p_value is None else f"{row.p_value:.3f}",
                "associated" if row.associated else "present",
                style="" if row.associated else "dim",
            )
        table.print()
        if (more := len(found.counters) - max(sure, SHOWN)) > 0:
            say(f"and {more} more that rose; --json has all")
    if (own := found.own_effect) is not None:
        words = "the sampler makes packets late" if own.delays else "the sampler: nothing seen"
        say(
            f"{words}: {own.packets} late packets in the device during a sample, "
            f"{own.expected:.1f} by chance, p = {own.p_value:.3f}"
        )
    say()


def _uncertainty(found: Finding) -> str:
    from tailtap.base.units import format_time

    if found.bounds_ns is not None:
        low, high = map(format_time, found.bounds_ns)
        return f", as both were compared: {low} to {high}"
    if (suggested := found.suggestion) is None:
        return ", as given"
    ends = f"{format_time(suggested.low_ns)} to {format_time(suggested.high_ns)}"
    return (
        f", suggested: {ends} fit as well, p = {suggested.p_value:.2g} for all counters and "
        "offsets together"
    )
