"""Claims of an experiment, judged. Shares and ratios are numbers, 0.05 for 5 %."""

from __future__ import annotations

from typing import Annotated, Literal

from tailtap.records.record import Count, Number, Record, says

Answer = Literal["held", "not shown", "contradicted"]
"""Whether runs show what a claim says: yes, they cannot tell, or they show that it is wrong."""


class ClaimEvidence(Record, kw_only=True):
    """What the repeats of one configuration say about a claim."""

    configuration: str
    against: Annotated[str | None, says("What it is held against; null of a requirement")] = None
    test: str
    answer: Answer
    measured: str
    reason: str
    runs: Annotated[Count, says("Runs that count")]
    against_runs: Count | None = None
    ratio: Annotated[Number | None, says("The latency as a multiple of that held against")] = None
    low: Annotated[Number | None, says("95 % bounds of the ratio")] = None
    high: Number | None = None


class ClaimRow(Record, kw_only=True):
    """A claim, and what is shown of it."""

    id: str
    says: str
    test: str
    answer: Answer
    reason: str
    compares: Annotated[bool, says("Whether it holds configurations against each other")]
    evidence: list[ClaimEvidence]
