"""A published experiment: ``site.json``, which says what of it is where."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from tailtap.records.record import (
    Anything,
    Count,
    InnerFile,
    Notice,
    Record,
    Texts,
    says,
)
from tailtap.records.run import Row, Status
from tailtap.records.verdict import Claim, ClaimRow

SITE = "site.json"
SUMS = "SHA256SUMS"
"""The checksums of all files of a site, as sha256sum(1) writes them."""
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
RedactedKind = Literal[
    "serials",
    "macs",
    "hostnames",
    "users",
    "addresses",
    "ids",
    "paths",
    "secrets",
    "people",
    "dates",
]


class Redacted(Record, kw_only=True):
    """What of one kind was replaced; never the values."""

    kind: RedactedKind
    values: Count
    places: Count
    example: str


class SiteMachine(Record, kw_only=True):
    """A machine that took part."""

    name: str
    roles: Texts
    file: Annotated[InnerFile, says("What it is, as `environment` of a run")]
    runs: Texts


class SiteCapture(Record, kw_only=True, omit_defaults=True):
    """A file of a measurement that is too large, or holds too much, for every site."""

    path: InnerFile
    bytes: Count
    sha256: Sha256
    place: Annotated[Literal["embedded", "elsewhere"], says("Whether it is in the site")]
    url: Annotated[str | None, says("Where it is to be had, if somebody published it")] = None


class SiteRun(Row, kw_only=True, omit_defaults=True):
    """A run of the site."""

    status: Status
    valid: bool | None = None
    error: str | None = None
    parameters: Annotated[Anything, says("All of them, as in `run.json`")]
    folder: InnerFile
    page: InnerFile


class SiteFigure(Record, kw_only=True):
    """A figure, what it was drawn from, and how it is drawn again."""

    name: str
    title: str
    page: InnerFile
    files: list[InnerFile]
    data: list[InnerFile]
    command: Texts
    drawn: Annotated[str, says("Where the command puts the drawing, less the end of its name")]


class SiteSoftware(Record, kw_only=True):
    """The program that made the site."""

    version: str
    code: Annotated[Sha256, says("The SHA-256 of its files: their names, sizes and contents")]
    packages: InnerFile


class SiteRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.site/1"):
    """``site.json``; paths are within the site."""

    name: str
    software: SiteSoftware
    scales: Texts
    published: Annotated[
        str | None, says("The day on which the last run ended; null where none says")
    ]
    anonymous: bool
    licences: Annotated[dict[str, str], says("Of `data` and of `text`, by SPDX")]
    authors: Texts
    machines: list[SiteMachine]
    runs: list[SiteRun]
    figures: list[SiteFigure]
    tables: list[InnerFile]
    captures: list[SiteCapture]
    claims: list[ClaimRow]
    redacted: list[Redacted]
    allowed: Annotated[list[RedactedKind], says("Kinds of which values were published on purpose")]
    left_out: dict[str, str]
    warnings: list[Notice]


class PublishRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.publish/1"):
    """``tailtap publish --json``."""

    folder: str | None
    bytes: Count
    files: Annotated[
        list[InnerFile],
        says("What leaves; with --check less what is made of it: figures, tables, pages"),
    ]
    site: SiteRecord


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
    what: str
    answer: Answer
    checked: Count
    reason: str
    findings: list[Finding]


class ClaimAnswer(Claim, kw_only=True):
    """A claim: what was published, and what is found."""

    answer: Answer
    published: ClaimRow
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

    place: str
    kind: Kind
    name: str
    about: Texts = []
    answer: Annotated[Answer, says("The worst of all")]
    steps: list[RepeatedStep]
    claims: list[ClaimAnswer] = []
    differences: Annotated[
        list[Difference], says("Of the machine there and this one, where it measured")
    ] = []
    folder: str | None = None
    warnings: list[Notice] = []
