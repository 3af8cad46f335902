"""Runs with their latencies without pauses from outside beside the plain ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tailtap.analysis.runs.groups import Configuration, Member
from tailtap.analysis.runs.reader import as_shown
from tailtap.analysis.undisturbed import stored_of
from tailtap.base.errors import InputError
from tailtap.records.record import Notice

DASH_DOT = (8, 3, 2, 3)
"""The pattern of their lines, which no repeat has."""


def with_undisturbed(
    groups: Sequence[Configuration],
) -> tuple[list[Configuration], list[Notice]]:
    """The same configurations, whose members have what `tailtap explain` stored of them.

    A warning for each of which that cannot be read.
    """
    damage: list[Notice] = []
    return [
        replace(group, members=tuple(_beside(member, damage) for member in group.members))
        for group in groups
    ], damage


def _beside(member: Member, damage: list[Notice]) -> Member:
    try:
        found = stored_of(member.run)
    except InputError as error:
        damage.append(Notice("file-damaged", str(error)))
        return member
    if found is None or not found.record.stretches:
        return member
    evaluation = None if found.evaluation is None else as_shown(found.evaluation)
    return replace(member, undisturbed=evaluation, left_out=found.record.words)
