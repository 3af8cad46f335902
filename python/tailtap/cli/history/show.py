"""`tailtap history show`: say at which commits the tail changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailtap.cli.command import PATH, command
from tailtap.cli.history import history_file
from tailtap.cli.terminal import say, warn

if TYPE_CHECKING:
    from tailtap.records.compare import HistoryRecord, Mark, Series

LAST = 10
"""Commits that are printed of a series; `--json` has all."""


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
def show(history: Path, at: str | None, page: Path | None, json: bool, quiet: bool) -> None:
    """Say at which commits the tail changed, and whether the program or the machine did it.

    Each configuration under each load is a series: of each commit the median of its runs. A change
    is called the machine's where the floor (wire) of the same commits changed as well, and unclear
    where something else of the machine changed at the same commit, such as the kernel.
    docs/howto/history.md says how changes are found, and how often wrongly. Needs
    `pip install ruptures`.
    """
    from tailtap.analysis.compare.history import histories
    from tailtap.cli.compare import percentile_of
    from tailtap.records.compare import HistoryRecord
    from tailtap.records.record import Notice, printed
    from tailtap.results.database.history import load

    runs = load(history)
    series = histories(runs, percentile_of(at, "--at"))
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
    if json:
        print(printed(found))
        return
    _print(found)
    if not quiet:
        for notice in found.warnings:
            warn(f"warning: {notice.message} [{notice.code}]")


def _print(found: HistoryRecord) -> None:
    from tailtap.base.units import format_us
    from tailtap.cli.console import Column, Table

    for series in found.series:
        floor = ", the floor" if series.wire else ""
        title = (
            f"{series.experiment}: {series.configuration}, {series.load}, "
            f"{series.percentile_text} in us{floor}"
        )
        table = Table(
            (
                Column("commit"), Column("date"), Column("runs", right=True),
                Column("median", right=True), Column("lowest", right=True),
                Column("highest", right=True), Column("change", wrap=20),
            ),
            title,
        )  # fmt: skip
        marks = {mark.place: mark for mark in series.marks}
        shown = set(range(len(series.points))[-LAST:]) | {
            place for mark in marks for place in (mark - 1, mark)
        }
        for place in sorted(shown):
            point, mark = series.points[place], marks.get(place)
            cells = (point.commit[:12], point.date[:10], str(point.runs), format_us(point.value),
                     format_us(point.low), format_us(point.high))  # fmt: skip
            table.add(*cells, _told(mark) if mark else "", style="bold" if mark else "")
        table.print()
        for mark in series.marks:
            say(_sentence(series, mark))
        if series.undecided:
            say(f"not decided yet: {series.undecided}")
        elif not series.marks:
            say(f"no change is shown in {len(series.points)} commits")
        say()


def _told(mark: Mark) -> str:
    return "another level" if mark.ratio is None else f"x{mark.ratio:.2f}"


def _sentence(series: Series, mark: Mark) -> str:
    first, *others = (commit[:12] for commit in mark.suspects)
    near = f" (or {', '.join(others)})" if others else ""
    text = f"{_told(mark)} from {first} on{near}, {mark.before[:12]} was the last before it: "
    if series.newest and mark is series.marks[-1]:
        text = f"newest commits: {text}"
    floors = {"the floor": mark.floor, "its noise": mark.noise}
    floor = ", ".join(f"{name} by x{by:.2f}" for name, by in floors.items() if by is not None)
    machine = "; ".join(mark.machine)
    match mark.origin:
        case "machine":
            return text + f"the machine changed, {floor}" + (f" ({machine})" if machine else "")
        case "unclear":
            return text + f"the machine changed at the same commit ({machine})"
        case "program":
            return text + "the program" + (f"; {floor}" if floor else "")
