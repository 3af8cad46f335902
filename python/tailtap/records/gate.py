"""A change against its baseline: what ``tailtap compare --worse-than --json`` prints."""

from __future__ import annotations

from typing import Annotated, Literal

from tailtap.records.compare import RepeatRow
from tailtap.records.record import Count, Notice, Number, Record, Share, says

Answer = Literal["better", "no worse", "worse", "not shown"]
"""What is shown of the new one: faster, slower by less than the margin, slower by more."""


class GateRow(Record, kw_only=True):
    """One configuration under one load, before and after the change. Latencies in ns."""

    configuration: str
    load: str
    percentile: Annotated[Share | None, says("1 is the maximum")]
    percentile_text: str
    answer: Answer
    reason: str
    base: list[RepeatRow]
    new: list[RepeatRow]
    ratio: Annotated[Number | None, says("Of the new one to the base")]
    ratio_low: Annotated[Number | None, says("Its 95 % interval")]
    ratio_high: Number | None
    p_worse: Annotated[
        Number | None, says("Of so high a latency, were it worse by the margin only")
    ]
    p_no_worse: Annotated[
        Number | None, says("Of so low a latency, were it worse by the whole margin")
    ]
    p_better: Annotated[Number | None, says("Of so low a latency, were there no difference")]
    repeats_needed: Annotated[
        Count | None,
        says("Of each, to tell no difference from the margin at this scatter"),
    ]


class GateRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.gate/1"):
    """``tailtap compare --worse-than --json``."""

    answer: Annotated[Answer, says("That of the worst row")]
    answers: Annotated[dict[Answer, Count], says("How many rows have which answer")]
    base: str
    new: str
    margin: Annotated[Share, says("What may be added to the latency, as a share of it")]
    alpha: Annotated[Share, says("The probability that any `worse`, or any `better`, is false")]
    alpha_no_worse: Annotated[Share, says("The probability of a false `no worse`")]
    rows: list[GateRow]
    warnings: list[Notice]
