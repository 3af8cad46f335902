"""`tailtap explain`, `interrupts`, `model`: why packets were late, and how late others may be."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from tailtap.base.errors import InputError, MachineError, NotTraced, TailtapError
from tailtap.base.units import parse_time
from tailtap.cli.command import (
    PATH,
    SHARE,
    TIME,
    Answer,
    Where,
    command,
    runs_and_folders,
    writes_into,
)
from tailtap.cli.terminal import now_and_then, say, steps, warn_of
from tailtap.library import keep_causes, kept_undisturbed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailtap.analysis.causes.many import Told
    from tailtap.analysis.causes.record import Line
    from tailtap.records.causes import CausesRecord
    from tailtap.records.evaluation import UndisturbedRecord
    from tailtap.records.tail import ModelRecord


TOLD = 10
"""Stalls that are printed in words."""
BRIEF_RUNS = 8
"""So many runs `tailtap run` explains at its end."""


@command(
    computes=True,
    examples=(
        (
            "tailtap explain results/first/runs/001-tc-mirred-r1",
            "the packets beyond the run's 99.9th percentile",
        ),
        (
            "tailtap explain results/first --late '100 us'",
            "all runs with a trace, and the packets that took longer than 100 us",
        ),
    ),
)
@runs_and_folders(
    "Run folders, or experiment folders: then all their finished runs that have a trace."
)
@click.option(
    "--late",
    default="p99.9",
    metavar="P|TIME",
    help="Which packets are late: those above a percentile such as p99.99, or above a latency such "
    "as '100 us'.",
)
@click.option(
    "--brief",
    is_flag=True,
    help="Print of each run only what its late packets waited for, and its worst packet.",
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Work on the cluster of this Dask scheduler, tcp://10.0.0.1:8786 "
    "(docs/howto/scaling.md). Needs `pip install distributed`.",
)
def explain(
    runs: tuple[Path, ...],
    late: str,
    brief: bool,
    scheduler: str | None,
    json: bool,
    quiet: bool,
) -> Answer:
    """Say why packets of a run were late, and which knobs may answer the causes.

    Needs runs with `trace: thin` (or full). Each nanosecond of a late packet belongs to one thing
    that the kernel did on the cores that served it. What had the core while a packet waited is a
    fact; what coincides is held against random shifts, and is else only present. Knobs are
    candidates: they were not tried.

    \b
    Columns of the table of causes:
      late packets   late by this cause, or waiting behind a stall of it
      share          of all late packets
      behind         how many of them waited behind others that a stall held up
      stalls         times without service, while packets waited, that it made
      worst, delay   their largest latency, and what it added to them in all
      beyond chance  how much more it overlaps with late packets than by chance
      p              how probable so much overlap is by chance
      candidates     knobs that answer it and can be set there, not tried

    causes.json and three tables go into each run's folder, and into results.duckdb. A run that
    cannot be explained keeps what it had, and the exit status is not 0. docs/explanation/causes.md
    explains the model.
    """
    from contextlib import nullcontext

    from tailtap.analysis.causes.many import Told, explain_many
    from tailtap.records.causes import ExplainedRecord

    where = Where(scheduler, chunk=None, jobs=None, quiet=quiet)
    try:
        with nullcontext() if scheduler is None else where.executor() as executor:
            found = explain_many(
                runs,
                executor,
                late=late,
                stalls=TOLD,
                undisturbed=kept_undisturbed,
                progress=now_and_then(steps("explain", quiet=quiet)),
            )
    except NotTraced as error:
        raise error.or_elsewhere("with `tailtap run --set trace=thin`") from error
    told = [one for _, one in found if isinstance(one, Told)]
    keep_causes(folder for folder, one in found if isinstance(one, Told))
    problem = _problem(
        [(folder.name, one) for folder, one in found if not isinstance(one, Told)], len(found)
    )
    if problem is not None and not told:
        raise problem
    records = [one.record for one in told]
    print_one = print_brief if brief else print_causes

    def show() -> None:
        for one in told:
            print_one(one.record, one.worst)

    return Answer(
        records[0] if len(found) == 1 else ExplainedRecord(runs=records), show, problem=problem
    )


def _problem(errors: Sequence[tuple[str, TailtapError]], runs: int) -> TailtapError | None:
    """What the command ends with, of the errors that runs gave."""

    if not errors:
        return None
    name, first = errors[0]
    if runs == 1:
        return first
    machine = any(not isinstance(error, InputError) for _, error in errors)
    kind = MachineError if machine else InputError
    return kind(f"{len(errors)} of {runs} runs could not be explained, {name} first: {first}")


def explain_briefly(folder: Path, runs: Sequence[Path]) -> None:
    """Print in few words why packets of finished runs of an experiment folder were late.

    Runs without a trace are left out, and what `tailtap explain` would store is stored. Many or
    large traces take time: of these only the command is printed.
    """
    from tailtap.analysis.causes.many import BRIEF_BYTES, Told, size_of

    traced = [run for run in runs if (run / "trace.events").is_file()]
    if len(traced) > BRIEF_RUNS or sum(map(size_of, traced)) > BRIEF_BYTES:
        say(f"why packets were late: tailtap explain {folder}")
        return
    told = []
    for run, one in _briefly(traced):
        if isinstance(one, Told):
            told.append(run)
            print_brief(one.record, one.worst)
        else:
            say(f"{run.name}: not explained: {one}")
    keep_causes(told)


def _briefly(traced: Sequence[Path]) -> Sequence[tuple[Path, Told | TailtapError]]:
    from tailtap.analysis.causes.many import explain_many

    if not traced:
        return ()
    return explain_many(traced, stalls=1, undisturbed=kept_undisturbed)


def _print_undisturbed(found: UndisturbedRecord | None) -> None:
    """Print how much time was taken away, and percentiles with it and without."""
    from tailtap.analysis.undisturbed.undisturbed import beside

    if found is not None and found.pauses:
        say(f"undisturbed: {found.words}")
        if found.latency_ns is not None:
            say(f"  {beside(found.plain_ns, found.latency_ns)}")


def print_brief(content: CausesRecord, worst: Sequence[Line]) -> None:
    """Print what made the late packets of one run late, and the worst of its stalls."""
    from tailtap.show.sections.causes import in_short

    say(f"{_run(content)}: {in_short(content)}")
    for line in worst[:1]:
        say(f"  the worst: {line.words}")
    _print_undisturbed(content.undisturbed)


def _run(content: CausesRecord) -> str:
    return content.run + " (invalid)" * (content.valid is False)


def print_causes(content: CausesRecord, worst: Sequence[Line]) -> None:
    """Print the object of ``--json`` of one run: causes, periods, its `worst` stalls, knobs."""
    from tailtap.analysis.causes.many import control_words
    from tailtap.cli.console import print_section
    from tailtap.show.sections.causes import causes_section

    print_section(causes_section(content, _run(content)))
    for line in worst:
        say(f"  {line.packet}: {line.words}")
    _print_undisturbed(content.undisturbed)
    say(content.remove.words)
    say(control_words(content.control))
    say()


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
    "docs/explanation/interrupts.md describes it.",
)
@click.option(
    "--offset",
    metavar="TIME",
    help="What to add to a sample's time for the captures', such as '12.5 s' or '-300 ms'. "
    "By default nothing where a run sampled itself, else what fits best.",
)
@click.option(
    "--worst",
    type=click.IntRange(min=1),
    help="How many of the worst packets count as late, by default 5000 and at most 1 % of all.",
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

    Runs with `interrupts: counters` sampled /proc/interrupts and /proc/softirqs. A counter is
    associated when its increments fit the worst packets, and at most 1 % of random shifts in time
    do as well with any counter; the rest is only present.

    An association names no cause. docs/explanation/interrupts.md explains the statistics, and when
    nothing can be told.
    """

    from tailtap.analysis.interrupts import Options, interrupts_of

    progress = steps("interrupts", quiet=quiet)

    options = Options(None if offset is None else _offset(offset), worst)
    record, found = interrupts_of(runs, options, samples=samples, out=out, progress=progress)
    if figures:
        from tailtap.show.report.diagnostics import interrupts_figure, write_diagnostics

        for one in found:
            if one.sampled.record.offset.ns is None:
                progress(f"{one.run.slug}: no figure without an offset of the clocks")
            else:
                figure = interrupts_figure(one.sampled)
                write_diagnostics(figure, one.folder, below=out or one.run.top)

    def show() -> None:
        from tailtap.cli.console import print_section
        from tailtap.show.sections.machine import interrupts_section

        for one in found:
            print_section(interrupts_section(one.sampled, one.run.slug))
            say()
        warn_of(record.warnings)

    return Answer(record, show)


def _offset(text: str) -> int:
    stripped = text.strip()
    ahead = parse_time(stripped.removeprefix("-"))
    return -ahead if stripped.startswith("-") else ahead


@command(computes=True)
@runs_and_folders(
    "Run folders, what `tailtap evaluate --out` wrote, or experiment folders: then "
    "all their finished runs."
)
@click.option(
    "--method",
    default="tailtap",
    type=click.Choice(["tailtap", "papers"]),
    help="What is printed. papers: the published method, every exceedance and no "
    "intervals. tail.json and --json have both.",
)
@click.option(
    "--fit",
    default="20 %",
    type=SHARE,
    help="The share of each run that is fitted, from its start; the rest checks the prediction.",
)
@click.option(
    "--threshold",
    multiple=True,
    metavar="P|TIME",
    help="A percentile of the fitted part, such as 99.95, or a latency such as '30 us'; "
    "may be repeated. By default the papers' five (99.5, 99.9, 99.95, 99.99, 99.999).",
)
@click.option(
    "--horizon",
    multiple=True,
    type=TIME,
    help="The level that one cluster exceeds in this time; may be repeated. By default 1 h "
    "and 24 h.",
)
@click.option(
    "--figures",
    is_flag=True,
    help="Also draw the diagnostic plots next to tail.json, as PNG, SVG and PDF.",
)
@writes_into(
    "Where tail.json and the plots go, in a folder for each run; by default the run's own folder."
)
def model(
    runs: tuple[Path, ...],
    method: Literal["tailtap", "papers"],
    fit: float,
    threshold: tuple[str, ...],
    horizon: tuple[int, ...],
    figures: bool,
    out: Path | None,
    json: bool,
    quiet: bool,
) -> Answer:
    """Predict the tail on a longer horizon, and check the prediction.

    A generalised Pareto distribution is fitted to the maxima of clusters of late packets, at the
    lowest threshold whose diagnostics hold. Return levels (such as the latency that one cluster
    exceeds in 24 h) have 95 % intervals. Where no threshold passes, or the rest of the run
    contradicts the prediction, the reason is printed in place of numbers.

    Apart stands what needs no model: how many packets to expect over latencies that the run has
    shown, and how likely later ones are.

    docs/explanation/model.md explains the statistics.
    """

    from tailtap.analysis.tail.analysis import Options
    from tailtap.analysis.tail.peaks import parse_threshold
    from tailtap.analysis.tail.runs import model_runs

    progress = now_and_then(steps("model", quiet=quiet))
    defaults = Options()
    options = Options(
        fit=fit,
        thresholds=tuple(map(parse_threshold, threshold)) if threshold else defaults.thresholds,
        horizons=horizon or defaults.horizons,
    )
    content, found = model_runs(runs, options, method=method, out=out, progress=progress)
    if figures:
        from tailtap.show.report.diagnostics import tail_figure, write_diagnostics

        for modelled in found:
            progress(f"{modelled.run.slug}: drawing")
            figure = tail_figure(modelled.model)
            write_diagnostics(figure, modelled.folder, below=out or modelled.run.top)
    return Answer(content, lambda: _print(content, method))


def _print(content: ModelRecord, method: str) -> None:
    from tailtap.cli.console import print_section, print_table
    from tailtap.show.sections.tail import model_sections, papers_section, repeats_table

    papers = method == "papers"
    for run in content.runs:
        for section in [papers_section(run)] if papers else model_sections(run):
            print_section(section)
        say()
    if len(content.runs) > 1 and content.summary:
        print_table(repeats_table(content.summary, papers=papers))
    warn_of(content.warnings)
