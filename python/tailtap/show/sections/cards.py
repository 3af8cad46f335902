"""What a page begins with: of each configuration its tail, whether it holds, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tailtap.analysis.runs.groups import Configuration, Finding, finding
from tailtap.records.causes import CausesRecord
from tailtap.records.verdict import VerdictRow
from tailtap.show.sections import Cell
from tailtap.show.sections.answers import answered
from tailtap.show.sections.causes import in_short


@dataclass(frozen=True)
class Card:
    """What stands of one configuration before everything else."""

    finding: Finding
    answers: Sequence[tuple[str, Cell]]
    """What was required of it, and the answer."""
    why: str
    """What made the packets of its worst repeat late; empty where that is not known."""
    candidates: Sequence[str]
    """What to type against it."""


def cards(
    named: Sequence[Configuration],
    groups: list[Configuration],
    verdicts: Sequence[VerdictRow],
    causes: Callable[[Configuration], CausesRecord | None],
) -> list[Card]:
    """The cards of the configurations `named` among all `groups`; `causes` are those of one."""
    found = []
    for group in named:
        record = causes(group)
        answers = [(one.requirement, answered(one.answer)) for one in verdicts
                   if one.configuration == group.label]  # fmt: skip
        why = in_short(record) if record else ""
        candidates = record.remove.lines if record else ()
        found.append(Card(finding(group, groups), answers, why, candidates))
    return found
