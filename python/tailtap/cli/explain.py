"""`tailtap explain`: say why packets of a run were late."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailtap.cli.command import command
from tailtap.cli.options import runs_and_folders

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailtap.cause.record import Json
    from tailtap.cause.remedies import Knob
    from tailtap.cause.stalls import Line
    from tailtap.errors import TailtapError

TOLD = 10
"""Stalls that are printed in words."""


@command(
    examples=(
        (
            "tailtap explain results/first/runs/001-tc-mirred-r1",
            "the packets beyond the run's 99.9th percentile",
        ),
        (
            "tailtap explain results/first --late '100 us'",
            "all runs with a trace, and the packets that took longer than 100 us",
        ),
    )
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
    "--scheduler",
    metavar="ADDRESS",
    help="Explain the runs side by side on the cluster of the Dask scheduler at ADDRESS, such as "
    "tcp://10.0.0.1:8786, whose workers have the same tailtap and see the run folders under the "
    "same paths. Needs `pip install 'tailtap[cluster]'`.",
)
def explain(
    runs: tuple[Path, ...], late: str, scheduler: str | None, json: bool, quiet: bool
) -> None:
    """Say why packets of a run were late, and which knobs would remove the causes.

    Needs runs that were measured with `trace: thin` (or full). The late packets are joined with
    what the kernel did on the cores that served them, on one clock: each nanosecond of a late
    packet belongs to one thing. A stall is a time in which a core did not serve while packets
    waited; a packet is late directly, or behind a stall. A cause is a claim: it is held against
    random shifts of the same events, and what does not pass is only present.

    causes.json and three tables go into each run's folder, and their rows into the results.duckdb
    of its experiment. A run that cannot be explained keeps what it had; the others go on, and the
    exit status is not 0. docs/explain.md explains the model, and what it cannot know.
    """
    import json as json_module
    import sys
    from contextlib import nullcontext

    from tailtap.cause.many import Told, explain_many
    from tailtap.cli.where import Where

    def progress(run: str) -> None:
        if not quiet:
            print(f"explain: {run}", file=sys.stderr)

    where = Where(scheduler, chunk=None, jobs=None, quiet=quiet)
    with nullcontext() if scheduler is None else where.executor() as executor:
        found = explain_many(
            runs, executor, late=late, knobs=remedies(), stalls=TOLD, progress=progress
        )
    told = [one for _, one in found if isinstance(one, Told)]
    _store(one.folder for one in told)
    contents = [one.record for one in told]
    if json and told:
        alone = len(found) == 1
        print(json_module.dumps(contents[0] if alone else {"runs": contents}, allow_nan=False))
    elif not json:
        for one in told:
            print_causes(one.record, one.worst)
    _complain(
        [(folder.name, one) for folder, one in found if not isinstance(one, Told)], len(found)
    )


def _complain(errors: Sequence[tuple[str, TailtapError]], runs: int) -> None:
    """Raise the first of the errors that runs gave, if there are any."""
    from tailtap.errors import InputError, MachineError

    if not errors:
        return
    name, first = errors[0]
    if runs == 1:
        raise first
    machine = any(isinstance(error, MachineError) for _, error in errors)
    kind = MachineError if machine else InputError
    raise kind(f"{len(errors)} of {runs} runs could not be explained, {name} first: {first}")


def _store(folders: Iterable[Path]) -> None:
    """Put runs into the databases of their experiments, where there are such."""
    databases: dict[Path, list[Path]] = {}
    for folder in folders:
        runs = folder.absolute().parent
        database = runs.parent / "results.duckdb"
        if runs.name == "runs" and database.is_file():
            databases.setdefault(database, []).append(folder)
    if databases:
        from tailtap.store import add_runs

        for database, of_it in databases.items():
            add_runs(database, of_it)


def print_causes(content: Json, worst: Sequence[Line]) -> None:
    """Print the object of ``--json`` of one run: causes, periods, its `worst` stalls, knobs."""
    from rich.table import Table
    from rich.text import Text

    from tailtap.cause.control import control_words
    from tailtap.cli.console import print_table
    from tailtap.units import format_time, format_us

    late, unexplained = content["late"], content["unexplained"]
    print(
        f"{content['run']}: {late['packets']:,} packets later than {late['words']}, by "
        f"{late['stalls']:,} stalls; median {format_time(late['median_ns'])}"
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("stalls", "packets", "behind", "worst us", "delay us", "share", "p"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("cause", no_wrap=True)
    table.add_column("knobs")
    for row in content["causes"]:
        name = f"{row['cause']} ({row['detail']})" if row["detail"] else row["cause"]
        present = row["claim"] == "present"
        table.add_row(
            f"{row['stalls']:,}",
            f"{row['packets']:,}",
            f"{row['behind']:,}",
            format_us(row["worst_ns"]),
            format_us(row["delay_ns"]),
            "" if row["share"] is None else f"{row['share']:.1%}",
            "" if row["p_value"] is None else f"{row['p_value']:.3g}",
            Text(f"present: {name}" if present else name),
            Text(", ".join(row["knobs"][:3]) + (", …" if row["knobs"][3:] else "")),
            style="dim" if present else None,
        )
    print_table(table)
    share = unexplained["packets"] / late["packets"]
    print(
        f"unexplained: {unexplained['packets']:,} packets ({share:.1%}), "
        f"{format_time(unexplained['delay_ns'])} of {format_time(late['delay_ns'])}"
    )
    if len(content["segments"]) > 1:
        for segment in content["segments"]:
            print(f"late in {segment['words']}: {segment['packets']:,} packets")
    for period in content["periods"]:
        print(f"period: {period['words']}")
    for line in worst:
        print(f"  {line.key}: {line.words}")
    print(content["remove"]["words"])
    print(control_words(content["control"]))
    for warning in content["warnings"]:
        print(f"warning: {warning['message']} [{warning['code']}]")
    print()


def remedies() -> list[Knob]:
    """The knobs of `tailtap host`, as remedies."""
    from tailtap.cause.remedies import Knob
    from tailtap.machine.knobs import KNOBS

    return [
        Knob(knob.name, tuple(knob.removes), knob.risk, knob.settable, knob.recommended)
        for knob in KNOBS
    ]
