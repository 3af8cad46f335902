"""`tailtap history add`: put the runs of a commit into a history."""

from __future__ import annotations

import subprocess
from pathlib import Path

import click

from tailtap.cli.command import PATH, command
from tailtap.cli.history import history_file
from tailtap.cli.terminal import say, warn


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
) -> None:
    """Put the good runs of a folder into a history, as measurements of a commit.

    The history is one DuckDB file, made if missing. It keeps the percentiles of each run, and what
    of its machine changes latencies. What was added before is replaced, so that it can be added
    again. Runs that failed or are invalid are left out. docs/howto/history.md says more.
    """
    from tailtap.base.errors import InputError
    from tailtap.records.compare import AddedRecord
    from tailtap.records.record import printed
    from tailtap.results.database.history import add as put

    if not commit.strip():
        raise InputError("--commit is empty: give what was measured, such as $(git rev-parse HEAD)")
    found = put(history, folder, commit.strip(), date or date_of(commit))
    if json:
        record = AddedRecord(
            history=str(history), commit=commit, date=found.date, runs=found.runs,
            replaced=found.replaced, left_out=list(found.left_out),
        )  # fmt: skip
        print(printed(record))
        return
    if not quiet:
        for left in found.left_out:
            warn(f"left out: {left}")
    again = f", {found.replaced} of them again" if found.replaced else ""
    say(f"{found.runs} runs of {commit} are in {history}{again}")


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
