"""What came of one way of repeating, put together of the things that were looked at."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tailtap.records.site import Answer, Finding, Level, RepeatedStep

ORDER: Sequence[Answer] = ("contradicted", "not shown", "reproduced")
"""The worst answer first."""


def worst(answers: Iterable[Answer]) -> Answer:
    """The worst of some answers; without any, nothing is shown."""
    found = set(answers)
    return next((answer for answer in ORDER if answer in found), "not shown")


def step(level: Level, what: str, checked: int, findings: Sequence[Finding]) -> RepeatedStep:
    """A step that looked at so many things, of which only those that differ are listed."""
    ordered = sorted(findings, key=lambda one: (ORDER.index(one.answer), one.what))
    answers: list[Answer] = [one.answer for one in findings]
    if checked and not answers:
        answers = ["reproduced"]
    wrong = sum(one.answer == "contradicted" for one in findings)
    unknown = sum(one.answer == "not shown" for one in findings)
    told = [
        f"{checked:,} looked at",
        *([f"{wrong:,} not as published"] if wrong else []),
        *([f"{unknown:,} not shown"] if unknown else []),
    ]
    return RepeatedStep(
        level=level,
        what=what,
        answer=worst(answers),
        checked=checked,
        reason=", ".join(told) if checked or findings else "there are none",
        findings=ordered,
    )


def contradicted(what: str, reason: str) -> Finding:
    """What is not as it was published."""
    return Finding(what=what, answer="contradicted", reason=reason)


def not_shown(what: str, reason: str) -> Finding:
    """What nothing tells."""
    return Finding(what=what, answer="not shown", reason=reason)
