"""`tailtap explain`: say why packets of a run were late."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailtap.cli.command import Answer, command
from tailtap.cli.options import runs_and_folders
from tailtap.cli.terminal import say, steps
from tailtap.library import keep_causes, kept_undisturbed, remedies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailtap.analysis.causes.many import Told
    from tailtap.analysis.causes.stalls import Line
    from tailtap.base.errors import TailtapError
    from tailtap.records.causes import CausesRecord
    from tailtap.records.evaluation import UndisturbedRecord

TOLD = 10
"""Stalls that are printed in words."""
BRIEF_CAUSES = 3
"""Causes that the shortest form names."""
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
    help="Explain the runs side by side on the cluster of the Dask scheduler at ADDRESS, such as "
    "tcp://10.0.0.1:8786, whose workers have the same tailtap and see the run folders under the "
    "same paths. Needs `pip install distributed`.",
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

    Needs runs that were measured with `trace: thin` (or full). The late packets are joined with
    what the kernel did on the cores that served them, on one clock: each nanosecond of a late
    packet belongs to one thing. A stall is a time in which a core did not serve while packets
    waited; a packet is late directly, or behind a stall. What had the core while a packet waited is
    a fact. What merely coincides is held against random shifts of the same events, and what does
    not pass is only present. Knobs are candidates: they were not tried.

    causes.json and three tables go into each run's folder, and their rows into the results.duckdb
    of its experiment. A run that cannot be explained keeps what it had; the others go on, and the
    exit status is not 0. docs/explanation/causes.md explains the model, and what it cannot know.
    """
    from contextlib import nullcontext

    from tailtap.analysis.causes.many import Told, explain_many
    from tailtap.base.errors import NotTraced
    from tailtap.cli.options import Where
    from tailtap.records.causes import ExplainedRecord

    where = Where(scheduler, chunk=None, jobs=None, quiet=quiet)
    try:
        with nullcontext() if scheduler is None else where.executor() as executor:
            found = explain_many(
                runs,
                executor,
                late=late,
                knobs=remedies(),
                stalls=TOLD,
                undisturbed=kept_undisturbed,
                progress=steps("explain", quiet=quiet),
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
    return Answer(
        records[0] if len(found) == 1 else ExplainedRecord(runs=records),
        lambda: [print_one(one.record, one.worst) for one in told],
        problem=problem,
    )


def _problem(errors: Sequence[tuple[str, TailtapError]], runs: int) -> TailtapError | None:
    """What the command ends with, of the errors that runs gave."""
    from tailtap.base.errors import InputError, MachineError

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
    return explain_many(traced, knobs=remedies(), stalls=1, undisturbed=kept_undisturbed)


def _print_undisturbed(found: UndisturbedRecord | None) -> None:
    """Print how much time was taken away, and percentiles with it and without."""
    from tailtap.analysis.undisturbed.undisturbed import beside

    if found is not None and found.pauses:
        say(f"undisturbed: {found.words}")
        if found.latency_ns is not None:
            say(f"  {beside(found.plain_ns, found.latency_ns)}")


def print_brief(content: CausesRecord, worst: Sequence[Line]) -> None:
    """Print what made the late packets of one run late, and the worst of its stalls."""
    from tailtap.base.units import format_count
    from tailtap.show.sections.causes import cause_name

    causes = [
        f"{row.packets:,} by {cause_name(row)}"
        for row in content.causes
        if row.claim != "present"  # which counts as unexplained
    ]
    told = causes[:BRIEF_CAUSES]
    if more := causes[BRIEF_CAUSES:]:
        told.append(f"others by {format_count(len(more), 'more cause')}")
    if untraced := content.unexplained.untraced:
        told.append(f"{untraced:,} while nothing was traced")
    if unexplained := content.unexplained.packets - untraced:
        told.append(f"{unexplained:,} unexplained")
    packets = format_count(content.late.packets, "packet")
    say(f"{_run(content)}: {packets} later than {content.late.words}: {', '.join(told)}")
    for line in worst[:1]:
        say(f"  the worst: {line.words}")
    _print_undisturbed(content.undisturbed)


def _run(content: CausesRecord) -> str:
    return content.run + " (invalid)" * (content.valid is False)


def print_causes(content: CausesRecord, worst: Sequence[Line]) -> None:
    """Print the object of ``--json`` of one run: causes, periods, its `worst` stalls, knobs."""
    from tailtap.analysis.causes.control import control_words
    from tailtap.cli.console import print_section
    from tailtap.show.sections.causes import causes_section

    print_section(causes_section(content, _run(content)))
    for line in worst:
        say(f"  {line.key}: {line.words}")
    _print_undisturbed(content.undisturbed)
    say(content.remove.words)
    say(control_words(content.control))
    say()
