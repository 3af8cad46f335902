"""A machine judged for a purpose: the audit of each knob, and what would be set to tune it.

Nothing is set yet.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tailtap.base.errors import InputError, MachineError
from tailtap.base.units import ranges
from tailtap.host.changes.clean import resource_of, unresolved
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
from tailtap.host.changes.kernel_values import shown, summary
from tailtap.host.changes.resource import Resource
from tailtap.host.knobs import named, select
from tailtap.host.knobs.knob import Knob
from tailtap.host.knobs.line import not_built
from tailtap.host.knobs.tree import Absent, Purpose, Tree, Unreadable
from tailtap.records.machine import Answer, Judged, Tuning
from tailtap.records.printed import AuditRecord, AuditRow, ChangeRow
from tailtap.records.record import made

ANSWERS: tuple[Answer, ...] = ("not-met", "unknown", "met", "not-applicable")


def tuning(
    found: AuditRecord,
    rows: Sequence[AuditRow],
    *,
    before: Mapping[str, str | None] | None = None,
    left: Mapping[str, str],
) -> Tuning:
    """What a run keeps of these `rows`, of what was there `before`, and what was `left` out."""
    return Tuning(
        role=found.role,
        cpus=found.cpus,
        housekeeping=found.housekeeping,
        interfaces=found.interfaces,
        before=dict(before or {}),
        left=dict(left),
        audit={row.name: made(row, Judged) for row in rows},
    )


def audit(tree: Tree, purpose: Purpose, names: Sequence[str] = ()) -> AuditRecord:
    """Judge the knobs or groups `names`, all by default.

    Raises `InputError` for a name that is neither.
    """
    rows = [judge(knob, tree, purpose) for knob in select(names)]
    return AuditRecord(
        role=purpose.role,
        cpus=ranges(purpose.cpus),
        housekeeping=ranges(purpose.housekeeping),
        interfaces=list(purpose.interfaces),
        rows=rows,
        met=all(row.answer != "not-met" or row.elsewhere for row in rows),
    )


def judge(knob: Knob, tree: Tree, purpose: Purpose) -> AuditRow:
    """What the machine says of one knob."""
    form = knob.where.form
    value = wanted = None
    try:
        wish = knob.wish(purpose, tree)
        _require_built(knob, tree, purpose)
        wanted = wish.told(form)
        found = knob.read(tree, purpose)
        value = summary(found, form)
        met = all(wish.holds(text, form) for text in found.values())
    except Absent as absent:
        return _row(knob, "not-applicable", value, None, str(absent))
    except Unreadable as unreadable:
        return _row(knob, "unknown", value, wanted, str(unreadable))
    except ValueError:
        reason = f"tailtap cannot read such a value, {form} was expected"
        return _row(knob, "unknown", value, wanted, reason)
    if not met and not knob.recommended:
        reason = f"it is there to compare, not recommended: {knob.why}"
        return _row(knob, "not-applicable", value, wanted, reason)
    return _row(knob, "met" if met else "not-met", value, wanted, knob.why)


def _row(knob: Knob, answer: Answer, value: str | None, wanted: str | None, why: str) -> AuditRow:
    return AuditRow(
        name=knob.name,
        group=knob.group,
        value=value,
        wanted=wanted,
        answer=answer,
        why=why,
        source=knob.source,
        settable=knob.settable,
        disruptive=knob.disruptive,
        risk=knob.risk,
        removes=list(knob.removes),
        recommended=knob.recommended,
        elsewhere=knob.elsewhere,
    )


def _require_built(knob: Knob, tree: Tree, purpose: Purpose) -> None:
    """Raises `Absent` for a word that would do nothing; whether others apply, their files say."""
    if knob.settable == "boot" and knob.word is not None:
        option = not_built(tree, knob.word(purpose, tree))
        if option is not None:
            raise Absent(f"the kernel was built without {option}")


@dataclass(frozen=True)
class Change:
    """One knob that is to be set."""

    knob: Knob
    before: AuditRow
    value: str
    purpose: Purpose
    """What for; without the interface of the default route if setting it disrupts."""
    resources: Sequence[Resource]

    @property
    def row(self) -> ChangeRow:
        """A row of ``tailtap host apply --json``."""
        return ChangeRow(
            name=self.knob.name,
            group=self.knob.group,
            before=self.before.value,
            to=shown(self.value, self.knob.where.form),
            disruptive=self.knob.disruptive,
            risk=self.knob.risk,
        )


@dataclass(frozen=True)
class Plan:
    """What is to be set, what is met already, and what cannot be set, with the reason."""

    tree: Tree
    changes: Sequence[Change]
    met: Sequence[str]
    left: Sequence[tuple[str, str]]
    """Knobs that are not as they should be and stay so: the name, and why, a clause."""


def plan(
    tree: Tree,
    purpose: Purpose,
    names: Sequence[str] = (),
    *,
    disruptive: bool = False,
    measuring: bool = False,
) -> Plan:
    """What sets the knobs or groups `names`, all that are recommended by default.

    A knob that is only to compare must be named itself. With `measuring` the tuning ends with this
    process, so that it may hold what the kernel gives to a process alone. Raises `InputError` for
    an unknown name, and for a named knob that nothing sets while the machine runs.
    """
    asked = {name for name in names if named(name) is not None}
    changes: list[Change] = []
    met: list[str] = []
    left: list[tuple[str, str]] = []
    for knob in select(names):
        if not knob.recommended and knob.name not in asked:
            continue
        if knob.settable != "runtime" and knob.name in asked:
            raise InputError(_not_now(knob))
        step = _step(knob, tree, purpose, disruptive=disruptive, measuring=measuring)
        match step:
            case Change():
                changes.append(step)
            case str():
                left.append((knob.name, step))
            case True:
                met.append(knob.name)
    return Plan(tree, changes, met, left)


def _step(
    knob: Knob, tree: Tree, purpose: Purpose, *, disruptive: bool, measuring: bool
) -> Change | str | bool:
    """The change; why there is none, though it should be; True if met, False if not applicable."""
    if knob.disruptive:
        kept = tree.default_route()
        without = purpose.without(kept)
        if without != purpose and _is_nothing(judge(knob, tree, without)):
            return (
                f"the default route is by {', '.join(sorted(kept))}"
                if judge(knob, tree, purpose).differs
                else False
            )
        purpose = without
    before = judge(knob, tree, purpose)
    if before.answer == "unknown":
        return before.why
    if not before.differs:
        return before.answer == "met"
    if knob.settable != "runtime":
        return (
            "it is set on the kernel's command line: see `tailtap host bootline`"
            if knob.settable == "boot"
            else "tailtap cannot set it"
        )
    if knob.where.held and not measuring:
        return "a process must hold it: an experiment that names it in dut.tuning does"
    if knob.disruptive and not disruptive:
        return "setting it takes links down or stops what runs: say --disruptive"
    try:
        value = knob.wish(purpose, tree).value
        return Change(knob, before, value, purpose, knob.where.changes(tree, purpose, value))
    except (Absent, Unreadable) as reason:
        return str(reason)


def _is_nothing(row: AuditRow) -> bool:
    """Whether there is nothing to set; a knob that is only to compare may well differ."""
    return row.answer == "not-applicable" and not row.differs


def _not_now(knob: Knob) -> str:
    if knob.settable == "boot":
        return f"{knob.name} is set on the kernel's command line, not while the machine runs"
    return f"{knob.name} cannot be set by tailtap: `tailtap host audit {knob.name}` says what it is"


TASK = "tailtap host apply"
"""Of which only one runs at a time, by the journals' heads."""


def apply(plan: Plan, *folders: Path) -> list[AuditRow]:
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
            after = judge(change.knob, plan.tree, change.purpose)
            if (
                after.differs and not change.knob.where.optional
            ):  # else its places may refuse values
                raise MachineError(f"it was set to {after.wanted}, but is {after.value}")
        except MachineError as error:
            raise MachineError(f"{error}; nothing is changed").at(change.knob.name) from error


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
