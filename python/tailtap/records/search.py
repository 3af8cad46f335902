"""A search for the highest rate: ``search.json``. Rates are pkt/s, losses shares."""

from __future__ import annotations

from typing import Annotated, Literal

from tailtap.records.experiment import ExperimentRecord
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
    says,
)

Reason = Literal["loss", "generator", "range"]
"""What limits the rate found: the device lost more; the generator could not send more; the range of
the search ended.
"""


Ended = Literal["done", "failed", "interrupted"]


class SearchSettings(Record, kw_only=True, rename={"low": "from", "high": "to"}):
    """The settings of a search."""

    method: str
    losses: Annotated[list[Share], says("One answer for each")]
    low: Width
    high: Width
    precision: Number
    trial_ns: Width
    trials: Width
    exceed: Share
    short_ns: Width
    tries: Annotated[Width, says("Failed trials after which the generator is taken to be unable")]


class AtRate(Record, kw_only=True):
    """The trials at a rate: those of full length in which the generator sent it."""

    rate: Width
    trials: Count
    exceeding: Annotated[Count, says("How many of them lost more than allowed")]
    duration_ns: Count
    packets: Count
    lost: Annotated[Count, says("Of all of them; at least so many where one was given up")]
    invalid: Annotated[Count, says("Further trials, in which the generator did not send this rate")]


class SearchAnswer(Record, kw_only=True):
    """The highest rate with at most one loss, and the evidence for it."""

    variables: Annotated[
        Anything, says("The varied values, as written; empty where nothing varies")
    ] = {}
    loss: Share
    rate: Annotated[Count | None, says("Null where none holds")]
    upper: Annotated[
        Count | None, says("The next one that does not hold; null where none was tried")
    ]
    reason: Reason
    width: Annotated[Number | None, says("The distance of the bounds as a share of the upper one")]
    loss_limit: Annotated[
        Share | None, says("The loss at the rate is below it with 95 % confidence")
    ]
    at_rate: AtRate | None
    at_upper: AtRate | None
    warnings: list[Notice]


class TrialRow(Record, kw_only=True):
    """A trial that was made."""

    variables: Annotated[Anything, says("As those of an answer")] = {}
    number: Count
    slug: InnerFile
    rate: Width
    duration_ns: Width
    give_up: Annotated[Number | None, says("The loss at which it may end early")]
    packets: Count
    lost: Count
    loss: Number
    achieved_rate: Number
    doubt: Annotated[str | None, says("Why the generator did not send what was asked of it")]
    given_up: bool
    warnings: Annotated[Texts, says("Codes")]


class SearchRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.search/1"):
    """``search.json``; while the search is running, without answers."""

    name: str
    status: Literal["running"] | Ended
    error: str | None
    settings: SearchSettings
    parameters: Annotated[Anything, says("Those of the experiment, with the first of what varies")]
    started: str
    finished: str | None
    answers: list[SearchAnswer]
    trials: list[TrialRow]


class SearchedRecord(SearchRecord, kw_only=True, tag_field="schema", tag="tailtap.searched/1"):
    """``tailtap search --json``: ``search.json``, its folder, and the latencies."""

    folder: str
    latency: Annotated[
        ExperimentRecord | None, says("Of runs at the rates found, if there are any")
    ]
