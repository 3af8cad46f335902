"""`tailtap compare` and `history`: configurations and commits against each other."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit

from tailtap.base.errors import InputError, MachineError
from tailtap.cli import exit_status
from tailtap.cli.command import (
    PATH,
    PERCENTILE,
    SHARE,
    Answer,
    Command,
    command,
    undisturbed_latencies,
)
from tailtap.cli.terminal import say, steps, unless, warn

if TYPE_CHECKING:
    from tailtap.records.compare import (
        AddedRecord,
        GateAnswer,
        GateRecord,
    )


STATUS: dict[GateAnswer, int] = {"better": 0, "no worse": 0, "worse": 1, "not shown": 5}
SKIP = 125
"""What `git bisect run` takes for: this commit cannot be tested."""
ABORT = 128
"""What ends `git bisect run`: 1 to 127 call a commit bad, whatever went wrong."""


class Gate(Command):
    """A command that `git bisect run` may call: no mistake on its line calls a commit bad."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:  # fmt: skip
        """Read the command line."""
        bisecting = "--bisect" in args
        try:
            return super().make_context(info_name, args, parent, **extra)
        except (click.UsageError, InputError) as error:
            if not bisecting:
                raise
            told = error.format_message() if isinstance(error, click.UsageError) else str(error)
            warn(f"tailtap: {told}")
            raise Exit(ABORT) from error


@contextlib.contextmanager
def bisected(bisect: bool) -> Iterator[None]:
    """End as `git bisect run` understands it, also where there is no answer."""
    try:
        yield
    except Exception as error:
        if not bisect:
            raise
        status = exit_status(error)
        sys.exit(SKIP if status == MachineError.exit_status else ABORT)


def status_of(answer: GateAnswer, *, bisect: bool) -> int:
    """With which status the program ends."""
    status = STATUS[answer]
    return SKIP if bisect and answer == "not shown" else status


@command(
    cls=Gate,
    computes=True,
    examples=(
        (
            "tailtap compare results/first",
            "the configurations of one experiment",
        ),
        (
            "tailtap compare old=results/monday new=results/friday --percentile 99.9",
            "two experiments, by a percentile",
        ),
        (
            "tailtap compare baseline results/change --worse-than '10 %' --at p99.9",
            "whether a change made the tail worse",
        ),
    ),
)
@click.argument(
    "runs",
    nargs=-1,
    required=True,
    metavar="[NAME=]RUN|DIR…",
    help="Run or experiment folders, what `tailtap evaluate --out` wrote, or imported results. "
    "Those with the same NAME are repeats of one configuration.",
)
@click.option(
    "--percentile",
    "--at",
    "percentile",
    type=PERCENTILE,
    metavar="P",
    help="A percentile such as 99.9 or p99.9, or max. By default what the experiment files "
    "require, else the highest that every run has ten packets above.",
)
@click.option(
    "--worse-than",
    type=SHARE,
    metavar="SHARE",
    help="Is the second worse than the first by more than this share, such as '5 %'?",
)
@click.option(
    "--bisect",
    is_flag=True,
    help="With --worse-than, for `git bisect run`: exit status 125 where nothing is shown, "
    "128 where no answer can be had.",
)
@click.option(
    "--junit",
    type=PATH,
    metavar="FILE",
    help="With --worse-than: also write JUnit XML.",
)
@click.option(
    "--markdown",
    type=PATH,
    metavar="FILE",
    help="With --worse-than: also write a summary in Markdown.",
)
@undisturbed_latencies
def compare(
    runs: tuple[str, ...],
    percentile: float | None,
    undisturbed: bool,
    worse_than: float | None,
    bisect: bool,
    junit: Path | None,
    markdown: Path | None,
    json: bool,
    quiet: bool,
) -> Answer:
    """Rank configurations by their tail, as far as the data can distinguish them.

    Runs that differ only in the repeat are one configuration. Those with the same traffic are
    ranked by exact rank tests over repeats: noise makes a ranking with a probability of 5 % at
    most. docs/howto/compare.md explains every column.

    With --worse-than: did a change make the tail worse? The exit status is 0 for better and no
    worse, 1 for worse, 5 for not shown.
    """
    from tailtap.analysis.compare import compare_runs
    from tailtap.analysis.compare.gate import judge_change
    from tailtap.show.sections.answers import gate_parts
    from tailtap.show.sections.comparison import comparison_parts

    progress = steps("compare", quiet=quiet)

    sources = [_source(text) for text in runs]
    if worse_than is not None:
        with bisected(bisect):
            change = judge_change(
                sources, worse_than, percentile, undisturbed=undisturbed, progress=progress
            )
            _write(change, junit, markdown)
        status = status_of(change.answer, bisect=bisect)
        return Answer(change, lambda: gate_parts(change), status, warnings=change.warnings)
    if bisect or junit or markdown:
        raise InputError("--bisect, --junit and --markdown are about --worse-than: give that, too")
    found = compare_runs(sources, percentile, undisturbed=undisturbed, progress=progress)
    return Answer(found, lambda: comparison_parts(found), warnings=found.warnings)


def _write(found: GateRecord, junit: Path | None, markdown: Path | None) -> None:
    from tailtap.analysis.verdict.junit import write_gate

    if junit is not None:
        write_gate(found, junit)
    if markdown is not None:
        from tailtap.show.sections.renderers import write_gate

        write_gate(found, markdown)


def _source(text: str) -> tuple[str, Path]:
    """A name and a path; a path that exists as it is written has none."""
    name, equals, path = text.partition("=")
    if Path(text).exists() or not equals or not name:
        return "", Path(text)
    return name, Path(path)


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
    help="A run or experiment folder, what `tailtap evaluate --out` wrote, or imported results.",
)
@click.option("--commit", required=True, metavar="SHA", help="What was measured.")
@click.option(
    "--date",
    metavar="ISO",
    help="When the commit was made, as 2026-11-26T10:00:00+00:00. By default as git says "
    "in this folder, else by the first run.",
)
@history_file
def add(
    folder: Path, commit: str, date: str | None, history: Path, json: bool, quiet: bool
) -> Answer:
    """Put the good runs of a folder into a history, as measurements of a commit.

    The history is one DuckDB file, made if missing: percentiles of runs, and what of their machines
    changes latencies. What was added before is replaced. Failed and invalid runs are left out.
    docs/howto/history.md says more.
    """
    from tailtap.results.history import add as put

    if not commit.strip():
        raise InputError("--commit is empty: give what was measured, such as $(git rev-parse HEAD)")
    record = put(history, folder, commit.strip(), date or date_of(commit))
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
    help="A percentile such as p99.9, or max; by default the highest that all runs of a "
    "series have ten packets above.",
)
@click.option(
    "--page",
    type=PATH,
    metavar="FILE",
    help="Also write a page with a figure of each series.",
)
def show(history: Path, at: float | None, page: Path | None, json: bool, quiet: bool) -> Answer:
    """Say at which commits the tail changed, and whether the program or the machine did it.

    Each configuration under each load is a series: of each commit the median of its runs. A change
    is the machine's where the floor (wire) changed as well, unclear where something else of the
    machine did, such as the kernel. docs/howto/history.md says how changes are found, and how often
    wrongly. Needs `pip install ruptures`.
    """
    from tailtap.analysis.compare.history import histories
    from tailtap.records.compare import HistoryRecord
    from tailtap.records.record import Notice
    from tailtap.results.history import load
    from tailtap.show.sections.comparison import history_parts

    runs = load(history)
    series = histories(runs, at)
    notices = []
    if not any(one.wire for one in series):
        text = "no series is of wire: a change of the machine looks like one of the program"
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
    return Answer(found, lambda: history_parts(found), warnings=found.warnings)
