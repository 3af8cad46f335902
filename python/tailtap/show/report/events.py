"""What was done to the device while packets were measured: a table, and marks in the figures."""

from __future__ import annotations

from collections.abc import Iterator

from tailtap.analysis.runs.groups import Configuration
from tailtap.analysis.runs.run import Run
from tailtap.analysis.runs.text import count_text, share_text, time_text
from tailtap.analysis.verdict.evidence import span
from tailtap.records.run import Event, Passed
from tailtap.show.report.tables import DASH, Cell, Row, Table

HEADS = ("event", "at", "took", "blocked", "packets", "lost", "p50", "p99", "p99.9", "max")
MOST = 30
"""So many events of a run have rows of their own; of more the ones that blocked longest."""


def events(groups: list[Configuration]) -> Table:
    """The events of every run, and the run's other time."""
    rows: list[Row] = []
    for group in groups:
        for member in group.members:
            rows += [
                Row(member.label, group.light, group.dark, "", cells) for cells in _rows(member.run)
            ]
    return Table(list(HEADS), rows)


def moments(run: Run) -> list[tuple[float, float]]:
    """Begin and end of each event, in s since the first packet; of one without an end its begin."""
    found = []
    for event in run.record.events if run.record is not None else ():
        if event.after_ns is not None:
            took = 0 if event.end_ns is None else event.end_ns - event.begin_ns
            found.append((event.after_ns / 1e9, (event.after_ns + took) / 1e9))
    return found


def _rows(run: Run) -> Iterator[tuple[Cell, ...]]:
    if run.record is None or not run.record.events:
        return
    told = [event for event in run.record.events if event.around is not None]
    if len(told) > MOST:
        longest = sorted(told, key=_blocked_ns, reverse=True)[:MOST]
        told = [event for event in told if event in longest]
    for event in told:
        took = DASH if event.end_ns is None else time_text(event.end_ns - event.begin_ns)
        block = DASH if event.blocked is None else span(event.blocked)
        off = f" ± {time_text(event.within_ns)}" if event.within_ns else ""
        yield (
            Cell(event.name, "" if event.status == 0 else "alarm"),
            Cell(f"{time_text(event.after_ns or 0)}{off}"),
            Cell(took),
            Cell(block),
            *_passed(event.around),
        )
    if run.record.beside_events is not None:
        dashes = [Cell(DASH)] * 3
        yield (Cell("other time"), *dashes, *_passed(run.record.beside_events))


def _blocked_ns(event: Event) -> int:
    return 0 if event.blocked is None else event.blocked.most_ns or event.blocked.least_ns


def _passed(passed: Passed | None) -> Iterator[Cell]:
    if passed is None:
        return
    yield Cell(count_text(passed.packets))
    share = f" ({share_text(passed.lost / passed.packets)})" if passed.lost else ""
    yield Cell(f"{count_text(passed.lost)}{share}", "alarm" if passed.lost else "")
    values = {row.p: row for row in passed.percentiles}
    for p in (0.5, 0.99, 0.999):
        row = values.get(p)
        yield Cell(time_text(row.value) if row is not None and row.supported else DASH)
    yield Cell(DASH if passed.max_ns is None else time_text(passed.max_ns), "max")
