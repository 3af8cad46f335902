"""`tailtap history`: the tail from commit to commit."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tailtap.base.errors import InputError
from tailtap.cli.command import PATH, PERCENTILE, Answer, command
from tailtap.cli.terminal import say, unless, warn_of

if TYPE_CHECKING:
    from tailtap.records.compare import AddedRecord, HistoryRecord

history_file: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--history",
    type=PATH,
    metavar="FILE",
    default=Path("history.duckdb"),
    help="The file of the history.",
)


@command(
    computes=True,
    examples=(
        (
            "tailtap history add results --commit $(git rev-parse HEAD)",
            "what was measured of this commit",
        ),
    ),
)
@click.argument(
    "folder",
    type=PATH,
    metavar="DIR",
    help="An experiment folder, a run folder, what `tailtap evaluate --out` wrote, or a folder or "
    "database with imported results.",
)
@click.option("--commit", required=True, metavar="SHA", help="What was measured.")
@click.option(
    "--date",
    metavar="ISO",
    help="When the commit was made, as 2026-11-26T10:00:00+00:00: commits are in the order of "
    "their dates. By default git is asked, in this folder; where it does not know the commit, its "
    "first run decides.",
)
@history_file
def add(
    folder: Path, commit: str, date: str | None, history: Path, json: bool, quiet: bool
) -> Answer:
    """Put the good runs of a folder into a history, as measurements of a commit.

    The history is one DuckDB file, made if missing. It keeps the percentiles of each run, and what
    of its machine changes latencies. What was added before is replaced, so that it can be added
    again. Runs that failed or are invalid are left out. docs/howto/history.md says more.
    """
    from tailtap.records.compare import AddedRecord
    from tailtap.results.history import add as put

    if not commit.strip():
        raise InputError("--commit is empty: give what was measured, such as $(git rev-parse HEAD)")
    found = put(history, folder, commit.strip(), date or date_of(commit))
    record = AddedRecord(
        history=str(history), commit=commit, date=found.date, runs=found.runs,
        replaced=found.replaced, left_out=list(found.left_out),
    )  # fmt: skip
    return Answer(record, lambda: _print_added(record, unless(quiet)))


def _print_added(record: AddedRecord, note: Callable[[str], None]) -> None:
    for left in record.left_out:
        note(f"left out: {left}")
    again = f", {record.replaced} of them again" if record.replaced else ""
    say(f"{record.runs} runs of {record.commit} are in {record.history}{again}")


def date_of(commit: str) -> str:
    """When a commit was made, as git says in this folder; empty where it does not know."""
    try:
        asked = subprocess.run(
            ["git", "show", "--no-patch", "--format=%cI", "--end-of-options", commit, "--"],
            capture_output=True, text=True, check=False, timeout=10,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    told = asked.stdout.strip().splitlines()
    return told[-1] if asked.returncode == 0 and told else ""


@command(
    computes=True,
    examples=(
        ("tailtap history show --at p99.9", "the changes of the 99.9th percentile"),
        ("tailtap history show --page history.html", "the same as a page with figures"),
    ),
)
@history_file
@click.option(
    "--at",
    type=PERCENTILE,
    metavar="P",
    help="A percentile such as p99.9, or max. By default for each series the highest that all its "
    "runs have ten packets above.",
)
@click.option(
    "--page",
    type=PATH,
    metavar="FILE",
    help="Also write a page with a figure of each series. It needs no network.",
)
def show(history: Path, at: float | None, page: Path | None, json: bool, quiet: bool) -> Answer:
    """Say at which commits the tail changed, and whether the program or the machine did it.

    Each configuration under each load is a series: of each commit the median of its runs. A change
    is called the machine's where the floor (wire) of the same commits changed as well, and unclear
    where something else of the machine changed at the same commit, such as the kernel.
    docs/howto/history.md says how changes are found, and how often wrongly. Needs
    `pip install ruptures`.
    """
    from tailtap.analysis.compare.history import histories
    from tailtap.records.compare import HistoryRecord
    from tailtap.records.record import Notice
    from tailtap.results.history import load

    runs = load(history)
    series = histories(runs, at)
    notices = []
    if not any(one.wire for one in series):
        text = "no series is of wire: what the machine changes cannot be told from the program"
        notices.append(Notice("no-floor", text))
    found = HistoryRecord(
        history=history.name,
        commits=list(dict.fromkeys(run.commit for run in runs)),
        series=series,
        warnings=notices,
    )
    if page is not None:
        from tailtap.show.report.history import write_history

        write_history(found, page)
    return Answer(found, lambda: _print(found, quiet=quiet))


def _print(found: HistoryRecord, *, quiet: bool) -> None:
    from tailtap.cli.console import print_section
    from tailtap.show.sections.comparison import history_section

    for series in found.series:
        print_section(history_section(series))
        say()
    if not quiet:
        warn_of(found.warnings)
