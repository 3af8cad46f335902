"""Runs with their latencies without pauses from outside beside the plain ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tailtap.analysis.runs.groups import Configuration, Member
from tailtap.analysis.runs.reader import as_shown
from tailtap.analysis.undisturbed import stored_of

DASH_DOT = (8, 3, 2, 3)
"""The pattern of their lines, which no repeat has."""


def with_undisturbed(groups: Sequence[Configuration]) -> list[Configuration]:
    """The same configurations, whose members have what `tailtap explain` stored of them."""
    return [replace(group, members=tuple(map(_beside, group.members))) for group in groups]


def _beside(member: Member) -> Member:
    found = stored_of(member.run)
    if found is None or not found.record.stretches:
        return member
    evaluation = None if found.evaluation is None else as_shown(found.evaluation)
    return replace(member, undisturbed=evaluation, left_out=found.words)
