"""A verdict: what ``tailtap verdict --json`` prints. Latencies are ns, shares from 0 to 1."""

from __future__ import annotations

from typing import Annotated, Literal

from tailtap.base.seen import Seen
from tailtap.records.record import Anything, Count, Notice, Number, Record, Share, Texts, says

Held = Literal["held", "not shown", "contradicted"]
"""Whether runs show what a claim says: yes, they cannot tell, or they show that it is wrong."""


class ClaimEvidence(Record, kw_only=True):
    """What the repeats of one configuration say about a claim."""

    configuration: str
    against: Annotated[str | None, says("What it is held against; null of a requirement")] = None
    test: str
    answer: Held
    measured: str
    reason: str
    runs: Count
    against_runs: Count | None = None
    ratio: Annotated[Number | None, says("The latency as a multiple of that held against")] = None
    low: Number | None = None
    high: Number | None = None


class Claim(Record, kw_only=True):
    """A claim, and why it is answered as it is."""

    id: str
    says: str
    test: str
    reason: str


class ClaimRow(Claim, kw_only=True):
    """A claim, and what is shown of it."""

    answer: Held
    compares: Annotated[bool, says("Whether it holds configurations against each other")]
    evidence: list[ClaimEvidence]


Answer = Literal["holds", "violated", "not shown"]
"""Whether a requirement holds: yes, no, or too few packets say."""


class RunFinding(Record, kw_only=True):
    """What one run says about a requirement."""

    run: str
    answer: Answer
    reason: str
    measured: str
    figures: Anything
    doubts: Texts


class VerdictRow(Record, kw_only=True):
    """One requirement of one configuration."""

    configuration: str
    requirement: str
    profile: str | None
    answer: Answer
    decided_by: Annotated[str, says("The worst run")]
    measured: str
    reason: str
    runs: list[RunFinding]


class RunNotice(Notice, frozen=True, kw_only=True):
    """A warning about a run."""

    run: str


class VerdictRecord(Seen, Record, kw_only=True, tag_field="schema", tag="tailtap.verdict/1"):
    """``tailtap verdict --json``."""

    answer: Annotated[Answer, says("The worst of all, claims included")]
    answers: dict[Answer, Count]
    confidence: Share
    undisturbed: bool = False
    verdicts: list[VerdictRow]
    claims: Annotated[
        list[ClaimRow], says("Of the experiment file, where nothing else was asked")
    ] = []
    warnings: list[RunNotice]
