"""Measurements over commits: what ``tailtap history`` stores and prints. Latencies in ns."""

from __future__ import annotations

from typing import Annotated, Literal

from tailtap.records.record import Count, Notice, Number, Record, Share, Texts, Whole, says

Origin = Literal["program", "machine", "unclear"]
"""What a change is of: nothing else changed; the floor changed, too; the machine changed."""


class AddedRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.history-added/1"):
    """``tailtap history add --json``."""

    history: str
    commit: str
    date: str
    runs: Annotated[Count, says("Those that were put in")]
    replaced: Annotated[Count, says("How many of them were there already")]
    left_out: Annotated[Texts, says("Runs without a good result, with the reason")]


class Point(Record, kw_only=True):
    """A commit in a series."""

    commit: str
    date: str
    runs: Count
    value: Annotated[
        Whole | None,
        says("The median of its runs; null where lost packets leave it unknown"),
    ]
    low: Annotated[
        Whole | None,
        says("The lowest of its runs, or of one run the lower end of its interval"),
    ]
    high: Whole | None


class Mark(Record, kw_only=True):
    """A change between two commits of a series."""

    place: Annotated[Count, says("That of the first commit behind it, from 0")]
    before: Annotated[str, says("The last commit before it")]
    suspects: Annotated[Texts, says("Commits, the most probable one first")]
    ratio: Annotated[Number | None, says("Of the medians behind and before it")]
    origin: Origin
    floor: Annotated[Number | None, says("The same ratio of `wire`; null where it is not known")]
    noise: Annotated[
        Number | None,
        says("The same ratio of `host noise`; null where it is not known"),
    ] = None
    machine: Annotated[Texts, says("What changed on the machine at the same place")]


class Series(Record, kw_only=True):
    """One configuration under one load, commit by commit."""

    experiment: str
    configuration: str
    load: str
    wire: bool
    percentile: Share
    percentile_text: str
    points: list[Point]
    marks: list[Mark]
    newest: Annotated[
        bool, says("Whether the last change is one of the newest commits, by their own test")
    ] = False
    undecided: Annotated[
        str, says("Why nothing can be said of the newest commits; empty where something can")
    ] = ""


class HistoryRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.history/1"):
    """``tailtap history show --json``."""

    history: str
    commits: Texts
    series: list[Series]
    warnings: list[Notice]
