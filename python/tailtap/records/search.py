"""Campaigns that record their course: a search, an improvement, one side against another.

Rates are pkt/s, losses shares, latencies ns.
"""

from __future__ import annotations

from typing import Annotated, Literal

from tailtap.records.causes import CauseName
from tailtap.records.compare import GateAnswer
from tailtap.records.experiment import ExperimentRecord
from tailtap.records.printed import Left
from tailtap.records.record import (
    Anything,
    Count,
    InnerFile,
    Notice,
    Number,
    Record,
    Share,
    Texts,
    Whole,
    Width,
    says,
)
from tailtap.records.verdict import Answer

Reason = Literal["loss", "generator", "range"]
"""What limits the rate found: the device lost more; the generator could not send more; the range of
the search ended.
"""


Ended = Literal["done", "failed", "interrupted"]


class Course(Record, kw_only=True):
    """What every campaign of this kind records of itself."""

    name: str
    status: Literal["running"] | Ended
    error: str | None
    parameters: Annotated[Anything, says("Those of the experiment, with the first of what varies")]
    started: str
    finished: str | None


class SearchSettings(Record, kw_only=True, rename={"low": "from", "high": "to"}):
    """The settings of a search."""

    method: str
    losses: list[Share]
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
    exceeding: Count
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
    upper: Count | None
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

    variables: Anything = {}
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
    warnings: Texts

    @property
    def valid(self) -> bool:
        """Whether it tells something about the device."""
        return self.doubt is None

    @property
    def forwarded(self) -> float:
        """The rate in pkt/s at which packets left the device."""
        return self.achieved_rate * (1 - self.loss)


class SearchRecord(Course, kw_only=True, tag_field="schema", tag="tailtap.search/1"):
    """``search.json``; while the search is running, without answers."""

    settings: SearchSettings
    answers: list[SearchAnswer]
    trials: list[TrialRow]


class SearchedRecord(SearchRecord, kw_only=True, tag_field="schema", tag="tailtap.searched/1"):
    """``tailtap search --json``: ``search.json``, its folder, and the latencies."""

    folder: str
    latency: Annotated[
        ExperimentRecord | None, says("Of runs at the rates found, if there are any")
    ]


Effect = Literal["helps", "no effect", "harms", "not shown"]
Stopped = Literal["holds", "nothing left", "time over"]


class ImproveSettings(Record, kw_only=True):
    """The settings of an improvement."""

    within_ns: Width
    margin: Annotated[Number, says("A smaller effect counts as none: 0.2 is a fifth, up or down")]
    error: Annotated[Share, says("The probability that any knob without effect is said to help")]
    tests: Annotated[Width, says("Among how many trials the error is divided")]
    disruptive: bool
    undisturbed: bool = False

    @property
    def error_each(self) -> float:
        """The error of one trial."""
        return self.error / self.tests


class Measured(Record, kw_only=True):
    """A percentile over runs: its median, with an interval of 95 % where the runs are enough."""

    ns: Whole
    low_ns: Whole | None
    high_ns: Whole | None
    runs: Count


class FoundCause(CauseName, kw_only=True):
    """A cause of late packets."""

    share: Share
    knobs: Texts


class Stage(Record, kw_only=True):
    """The machine with the settings kept so far: why packets are late, and whether it holds."""

    kept: Texts
    run: str | None
    threshold_ns: Annotated[Whole, says("Later packets are late")]
    late: Annotated[Share, says("Of all packets, in the run with a trace")]
    causes: list[FoundCause]
    percentile: Annotated[Measured, says("That which is required, of untraced runs")]
    answer: Annotated[Answer, says("Of the requirement, over the same runs")]
    runs: Texts


class KnobTrial(Record, kw_only=True):
    """A knob that was tried, with and without, in blocks of runs in random order."""

    knob: str
    stage: Annotated[Width, says("On top of which stage, from 1")]
    causes: Annotated[list[CauseName], says("Those that it may answer")]
    share_before: Annotated[Share, says("Packets late by these causes, of all")]
    share_after: Annotated[Share | None, says("The same once it was kept; null where it was not")]
    threshold_ns: Whole
    pairs: Annotated[list[list[Number]], says("Late shares with it, and without")]
    before: Measured | None
    after: Measured | None
    ratio: Number | None
    low: Annotated[Number | None, says("The ratio is above it, at the test's error")]
    high: Number | None
    spoiled: Annotated[Count, says("Pairs of which a run failed or is invalid")]
    answer: Effect
    kept: Annotated[bool, says("Of knobs that help against one cause, the strongest is kept")]
    runs: Texts


class ImproveRecord(Course, kw_only=True, tag_field="schema", tag="tailtap.improve/1"):
    """``improve.json``, which ``tailtap improve --json`` prints, too."""

    requirement: str
    p: Share
    settings: ImproveSettings
    purpose: str
    seed: Count = 0
    stopped: Stopped | None
    answer: Annotated[Answer, says("Of the requirement, with all that was kept")]
    stages: list[Stage]
    trials: list[KnobTrial]
    left: list[Left]
    kept: Annotated[Texts, says("The knobs that helped, in this order")]
    applied: Annotated[bool, says("Whether they stay set on this machine")]


class AgainstRecord(Course, kw_only=True, tag_field="schema", tag="tailtap.against/1"):
    """``against.json``, which ``tailtap run --against --json`` prints, too."""

    base: str
    p: Share
    margin: Annotated[Number, says("More than this is worse: 0.05 is 5 %")]
    error_rate: Annotated[Share, says("The probability of a wrong answer but `worse`")]
    error_rate_worse: Annotated[Share, says("The probability of a wrong `worse`")]
    within_ns: Width
    base_parameters: Anything
    answer: GateAnswer
    pairs: Annotated[list[list[Width]], says("The percentile, and that of the base")]
    spoiled: Annotated[Count, says("Pairs of which a run failed or is invalid")]
    ratio: Annotated[Number | None, says("The median of the pairs' ratios to the base")]
    low: Annotated[Number | None, says("The ratio is above it, at the error rate of `worse`")]
    high: Number | None
    runs: Texts
