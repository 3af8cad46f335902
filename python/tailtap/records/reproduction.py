"""What repeating something published showed: what ``tailtap reproduce --json`` prints."""

from __future__ import annotations

from typing import Annotated, Literal

from tailtap.records.claims import ClaimRow
from tailtap.records.record import Count, Notice, Record, Texts, says

Answer = Literal["reproduced", "not shown", "contradicted"]
"""Whether what was published is found again: yes, nothing tells, or something else is found."""
Level = Literal["checksums", "captures", "figures", "small", "full"]
Kind = Literal["site", "crate", "results"]
"""What was given: a site of `tailtap publish`, a crate of the RISE profile, result files."""


class Finding(Record, kw_only=True):
    """One thing that was not found again as it was published, and why."""

    what: str
    answer: Answer
    reason: str


class RepeatedStep(Record, kw_only=True):
    """One way of repeating."""

    level: Level
    what: Annotated[str, says("What was looked at, in a few words")]
    answer: Answer
    checked: Annotated[Count, says("How many things were looked at")]
    reason: Annotated[str, says("What came of it, in a sentence")]
    findings: Annotated[list[Finding], says("Everything that is not as it was published")]


class ClaimAnswer(Record, kw_only=True):
    """A claim: what was published, and what is found."""

    id: str
    says: str
    test: str
    answer: Answer
    reason: str
    published: Annotated[ClaimRow, says("What the site says")]
    again: Annotated[ClaimRow, says("What its runs show when they are judged again")]
    here: Annotated[ClaimRow | None, says("What runs here show; null where none were made")] = None


class Difference(Record, kw_only=True):
    """What of the machines is not the same."""

    what: str
    there: str
    here: str
    machine: Annotated[bool, says("Whether latencies of the two machines differ for that alone")]


class ReproductionRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.reproduction/1"):
    """``tailtap reproduce --json``."""

    place: Annotated[str, says("What was given")]
    kind: Kind
    name: str
    about: Annotated[Texts, says("What it is, in its own words")] = []
    answer: Annotated[Answer, says("The worst of all")]
    steps: list[RepeatedStep]
    claims: list[ClaimAnswer] = []
    differences: Annotated[
        list[Difference], says("Of the machine there and this one, where it measured")
    ] = []
    folder: Annotated[str | None, says("Where new runs are")] = None
    warnings: list[Notice] = []
