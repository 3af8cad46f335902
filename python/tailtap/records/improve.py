"""What `tailtap improve` tried and what it showed: ``improve.json``. Times are ns."""

from __future__ import annotations

from typing import Annotated, Literal

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
    says,
)
from tailtap.records.verdict import Answer

Effect = Literal["helps", "no effect", "harms", "not shown"]
Stopped = Literal["holds", "nothing left", "time over"]
Status = Literal["running", "done", "interrupted", "failed"]


class ImproveSettings(Record, kw_only=True):
    """The settings of an improvement."""

    within_ns: Width
    margin: Annotated[Number, says("A smaller effect counts as none: 0.2 is a fifth, up or down")]
    error: Annotated[Share, says("The probability that any knob without effect is said to help")]
    tests: Annotated[Width, says("Among how many trials the error is divided")]
    disruptive: bool
    undisturbed: Annotated[
        bool, says("Whether latencies without pauses from outside are compared")
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
    share: Annotated[Share, says("Of all packets, those late by it")]
    knobs: Texts


class Stage(Record, kw_only=True):
    """The machine with the settings kept so far: why packets are late, and whether it holds."""

    kept: Texts
    run: Annotated[str | None, says("The run with a trace that was explained")]
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
    before: Annotated[Measured | None, says("The percentile without it")]
    after: Annotated[Measured | None, says("The percentile with it")]
    ratio: Annotated[Number | None, says("Late packets with it, as a multiple of those without")]
    low: Annotated[Number | None, says("The ratio is above it, at the test's error")]
    high: Number | None
    spoiled: Annotated[Count, says("Pairs of which a run failed or is invalid")]
    answer: Effect
    kept: Annotated[bool, says("Of knobs that help against one cause, the strongest is kept")]
    runs: Texts


class ImproveRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.improve/1"):
    """``improve.json``, which ``tailtap improve --json`` prints, too."""

    name: str
    status: Status
    error: str | None
    requirement: str
    p: Annotated[Share, says("The percentile that is required")]
    settings: ImproveSettings
    parameters: Annotated[Anything, says("Those of the experiment")]
    purpose: Annotated[str, says("Options of `tailtap host` for the same machine")]
    seed: Annotated[Count, says("Of the order of runs")] = 0
    started: str
    finished: str | None
    stopped: Annotated[Stopped | None, says("Why it ended")]
    answer: Annotated[Answer, says("Of the requirement, with all that was kept")]
    stages: list[Stage]
    trials: list[KnobTrial]
    left: Annotated[list[Left], says("Candidates that were not tried, and why")]
    kept: Annotated[Texts, says("The knobs that helped, in this order")]
    applied: Annotated[bool, says("Whether they stay set on this machine")]
