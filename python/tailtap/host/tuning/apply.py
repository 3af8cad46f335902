"""Tuning as a transaction: all of a plan is set and read back, or nothing is changed.

Each change is entered in a journal before it is made. `apply` keeps its journal: the tuning stays
when the process ends, and `revert` undoes it, newest change first, in any later process. `tuned` is
for a measurement: the tuning ends with it. A process that is killed in between leaves a journal
that is not kept, which `revert` and `tailtap clean` both undo.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tailtap.base.errors import MachineError
from tailtap.host.changes.clean import unresolved
from tailtap.host.changes.journal import (
    FOLDERS,
    Entry,
    Journal,
    Record,
    locked,
    mark_undone,
    read_all,
    remove_drafts,
)
from tailtap.host.changes.kinds import resource_of
from tailtap.host.tuning.audit import Judgement, judge
from tailtap.host.tuning.plan import Change, Plan

TASK = "tailtap host apply"
"""Of which only one runs at a time, by the journals' heads."""


def apply(plan: Plan, *folders: Path) -> list[Judgement]:
    """Set all of `plan` so that it stays; without changes nothing is written.

    Journals are in `folders`. Returns what is not met all the same, as single places of it may
    refuse values (`optional`). Raises `MachineError` when the machine refuses something, or when
    somebody else is at it; everything is then as before, and the message names the knob.
    """
    if not plan.changes:
        return []
    journal = Journal.create(*folders, task=TASK)
    with contextlib.ExitStack() as stack:
        stack.callback(journal.close)
        _set(plan, journal, stack)
        journal.keep()
        stack.pop_all()
    after = [judge(change.knob, plan.tree, change.purpose) for change in plan.changes]
    return [row for row in after if row.differs]


@contextlib.contextmanager
def tuned(plan: Plan, journal: Journal) -> Iterator[None]:
    """All of `plan`, set by a measurement that has a journal, and put back at the end.

    What could not be put back, as somebody else changed it, is in the journal's `left`. Raises
    what `apply` raises.
    """
    with contextlib.ExitStack() as stack:
        _set(plan, journal, stack)
        yield


def _set(plan: Plan, journal: Journal, stack: contextlib.ExitStack) -> None:
    """Set each change of `plan` and look at it again; `stack` undoes them."""
    for change in plan.changes:
        try:
            for resource in change.resources:
                entry = journal.enter(resource)
                stack.callback(journal.undo, entry, resource)
                journal.apply(entry, resource)
            _verify(change, plan)
        except MachineError as error:
            raise MachineError(f"{error}; nothing is changed").at(change.knob.name) from error


def _verify(change: Change, plan: Plan) -> None:
    """Raises `MachineError` unless the knob is met, or its places may refuse values."""
    after = judge(change.knob, plan.tree, change.purpose)
    if after.differs and not getattr(change.knob.where, "optional", False):
        raise MachineError(f"it was set to {after.wanted}, but is {after.value}")


@dataclass(frozen=True)
class Reverted:
    """What `revert` did."""

    undone: tuple[str, ...]
    """The labels of what was put back, newest first."""
    left: tuple[str, ...]
    """A sentence for each thing that somebody else changed, and that was left."""
    ended: tuple[str, ...]
    """The labels of what a reboot had ended before, newest first."""


def revert(*folders: Path, dry_run: bool = False, kinds: frozenset[str] = frozenset()) -> Reverted:
    """Undo every tuning of this machine that was kept or cut off, newest change first.

    With `kinds` only those that changed nothing but such resources. What no longer holds our value
    is left and told. What a reboot has ended is told, and files are left to put back then. A second
    call finds nothing to do. With `dry_run` nothing is changed. Raises `MachineError` when a
    `tailtap host apply` runs, when a measurement still uses what was set, and when something
    resists, which stays in the journal.
    """
    folders = folders or FOLDERS
    undone: list[str] = []
    left: list[str] = []
    ended: list[str] = []
    with locked(folders[-1]):
        remove_drafts(*folders)
        tunings = _tunings(folders, kinds)
        for record in tunings:
            for entry in reversed(record.entries):
                label, said = _undo(record, entry, dry_run=dry_run)
                undone += [] if label is None else [label]
                left += [] if said is None else [said]
            ended += [entry.name for entry in reversed(record.ended)]
            # What another version of tailtap has entered stays for that version to undo.
            sentence = unresolved(record)
            if sentence is not None:
                left.append(sentence)
            elif not dry_run:
                record.path.unlink(missing_ok=True)
    return Reverted(tuple(undone), tuple(left), tuple(ended))


def _tunings(folders: tuple[Path, ...], kinds: frozenset[str]) -> list[Record]:
    """Journals of tunings, newest first. Raises `MachineError` when they are not to be undone."""
    records = list(read_all(*folders))
    found = [
        record
        for record in records
        if record.task == TASK
        and (not kinds or (record.entries and {one.kind for one in record.entries} <= kinds))
    ]
    for record in found:
        if record.foreign:
            raise MachineError(
                f"{record.path} is the journal of another machine: remove it, or revert there"
            )
        if record.alive and not record.kept:
            pid = record.owner.pid if record.owner else 0
            raise MachineError(f"a {TASK} runs, process {pid}: wait until it has ended")
    ours = {claim for record in found for entry in record.entries for claim in entry.claims}
    for record in records:
        used = {claim for entry in record.entries for claim in entry.claims}
        if record not in found and not ours.isdisjoint(used):
            remedy = (
                "wait until it has ended" if record.alive else "call `sudo tailtap clean` first"
            )
            what = sorted(ours & used)[0]
            raise MachineError(f"a measurement has changed {what} since: {remedy}")
    return sorted(found, key=lambda record: -record.order)


def _undo(record: Record, entry: Entry, *, dry_run: bool) -> tuple[str | None, str | None]:
    """What was put back, if anything, and what is said of what was not."""
    resource = resource_of(entry)
    if resource is None:
        return None, None  # its journal says so
    if not resource.pending(entry.old, entry.applied):
        return None, None
    if dry_run:
        return entry.name, None
    said = resource.undo(entry.old, entry.applied)
    mark_undone(record.path, entry.number)
    return (entry.name if said is None else None), said
