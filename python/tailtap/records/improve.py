"""What `tailtap improve` tried and what it showed: ``improve.json``. Times are ns."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from tailtap.records.causes import CauseName
from tailtap.records.printed import Left
from tailtap.records.record import (
    Anything,
    Count,
    Number,
    Record,
    Share,
    Texts,
    Whole,
    Width,
)
from tailtap.records.verdict import Answer

Effect = Literal["helps", "no effect", "harms", "not shown"]
Stopped = Literal["holds", "nothing left", "time over"]
Status = Literal["running", "done", "interrupted", "failed"]


class ImproveSettings(Record, kw_only=True):
    """The settings of an improvement."""

    within_ns: Width
    margin: Annotated[
        Number, Meta(description="A smaller effect counts as none: 0.2 is a fifth, up or down")
    ]
    error: Annotated[
        Share, Meta(description="The probability that any knob without effect is said to help")
    ]
    tests: Annotated[Width, Meta(description="Among how many trials the error is divided")]
    disruptive: bool
    undisturbed: Annotated[
        bool, Meta(description="Whether latencies without pauses from outside are compared")
    ] = False


class Measured(Record, kw_only=True):
    """A percentile over runs: its median, with an interval of 95 % where the runs are enough."""

    ns: Whole
    low_ns: Whole | None
    high_ns: Whole | None
    runs: Count


class FoundCause(Record, kw_only=True):
    """A cause of late packets."""

    cause: str
    detail: str
    share: Annotated[Share, Meta(description="Of all packets, those late by it")]
    knobs: Texts


class Stage(Record, kw_only=True):
    """The machine with the settings kept so far: why packets are late, and whether it holds."""

    kept: Texts
    run: Annotated[str | None, Meta(description="The run with a trace that was explained")]
    threshold_ns: Annotated[Whole, Meta(description="Later packets are late")]
    late: Annotated[Share, Meta(description="Of all packets, in the run with a trace")]
    causes: list[FoundCause]
    percentile: Annotated[Measured, Meta(description="That which is required, of untraced runs")]
    answer: Annotated[Answer, Meta(description="Of the requirement, over the same runs")]
    runs: Texts


class KnobTrial(Record, kw_only=True):
    """A knob that was tried, with and without, in blocks of runs in random order."""

    knob: str
    stage: Annotated[Width, Meta(description="On top of which stage, from 1")]
    causes: Annotated[list[CauseName], Meta(description="Those that it may answer")]
    share_before: Annotated[Share, Meta(description="Packets late by these causes, of all")]
    share_after: Annotated[
        Share | None, Meta(description="The same once it was kept; null where it was not")
    ]
    threshold_ns: Whole
    pairs: Annotated[list[list[Number]], Meta(description="Late shares with it, and without")]
    before: Annotated[Measured | None, Meta(description="The percentile without it")]
    after: Annotated[Measured | None, Meta(description="The percentile with it")]
    ratio: Annotated[
        Number | None, Meta(description="Late packets with it, as a multiple of those without")
    ]
    low: Annotated[Number | None, Meta(description="The ratio is above it, at the test's error")]
    high: Number | None
    spoiled: Annotated[Count, Meta(description="Pairs of which a run failed or is invalid")]
    answer: Effect
    kept: Annotated[
        bool, Meta(description="Of knobs that help against one cause, the strongest is kept")
    ]
    runs: Texts


class ImproveRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.improve/1"):
    """``improve.json``, which ``tailtap improve --json`` prints, too."""

    name: str
    status: Status
    error: str | None
    requirement: str
    p: Annotated[Share, Meta(description="The percentile that is required")]
    settings: ImproveSettings
    parameters: Annotated[Anything, Meta(description="Those of the experiment")]
    purpose: Annotated[str, Meta(description="Options of `tailtap host` for the same machine")]
    seed: Annotated[Count, Meta(description="Of the order of runs")] = 0
    started: str
    finished: str | None
    stopped: Annotated[Stopped | None, Meta(description="Why it ended")]
    answer: Annotated[Answer, Meta(description="Of the requirement, with all that was kept")]
    stages: list[Stage]
    trials: list[KnobTrial]
    left: Annotated[list[Left], Meta(description="Candidates that were not tried, and why")]
    kept: Annotated[Texts, Meta(description="The knobs that helped, in this order")]
    applied: Annotated[bool, Meta(description="Whether they stay set on this machine")]
