"""A search for the highest rate: ``search.json``."""

from __future__ import annotations

from tailtap.records.record import (
    Anything,
    Count,
    InnerFile,
    Notice,
    Number,
    Record,
    Share,
    Texts,
    Width,
)


class SearchSettings(Record, kw_only=True):
    """The settings of a search."""

    method: str


class AtRate(Record, kw_only=True):
    """The trials at a rate."""

    trials: Count
    exceeding: Count
    duration_ns: Count
    packets: Count
    lost: Count


class SearchAnswer(Record, kw_only=True):
    """The answer for one loss."""

    loss: Share
    rate: Count | None
    upper: Count | None
    reason: str | None
    width: Number | None
    loss_limit: Share | None
    at_rate: AtRate | None
    warnings: list[Notice]


class TrialRow(Record, kw_only=True):
    """A trial that was made."""

    number: Count
    slug: InnerFile
    rate: Width
    duration_ns: Width
    give_up: Number | None
    packets: Count
    lost: Count
    achieved_rate: Number
    doubt: str | None
    given_up: bool
    warnings: Texts


class BegunSearch(Record, kw_only=True):
    """``search.json`` of a search that may go on."""

    settings: SearchSettings
    trials: list[TrialRow]


class SearchRecord(Record, kw_only=True):
    """``search.json`` of a search with its answers."""

    settings: SearchSettings
    answers: list[SearchAnswer]
    trials: list[Anything]
