"""A verdict: what ``tailtap verdict --json`` prints. Latencies are ns, shares from 0 to 1."""

from __future__ import annotations

from typing import Annotated, Literal

from tailtap.records.claims import ClaimRow
from tailtap.records.record import Anything, Count, Record, Share, Texts, says

Answer = Literal["holds", "violated", "not shown"]
"""Whether a requirement holds: yes, no, or too few packets say."""


class RunFinding(Record, kw_only=True):
    """What one run says about a requirement."""

    run: str
    answer: Answer
    reason: str
    measured: str
    figures: Annotated[Anything, says("The numbers behind it, by their names")]
    doubts: Annotated[Texts, says("Codes of the run's warnings")]


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


class RunNotice(Record, kw_only=True):
    """A warning about a run."""

    run: str
    code: str
    message: str


class VerdictRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.verdict/1"):
    """``tailtap verdict --json``."""

    answer: Annotated[Answer, says("The worst of all, claims included")]
    answers: Annotated[dict[Answer, Count], says("How many rows have which answer")]
    confidence: Share
    undisturbed: Annotated[
        bool, says("Whether latencies without pauses from outside were judged")
    ] = False
    verdicts: list[VerdictRow]
    claims: Annotated[
        list[ClaimRow], says("Of the experiment file, where nothing else was asked")
    ] = []
    warnings: list[RunNotice]
