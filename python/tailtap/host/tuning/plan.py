"""What would be set to tune a machine for a purpose, before anything is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tailtap.base.errors import InputError
from tailtap.host.changes.kernel_values import shown
from tailtap.host.changes.resource import Resource
from tailtap.host.knobs import named, select
from tailtap.host.knobs.knob import Knob
from tailtap.host.knobs.purpose import Purpose
from tailtap.host.knobs.tree import Absent, Tree, Unreadable
from tailtap.host.tuning.audit import Judgement, judge
from tailtap.records.printed import ChangeRow


@dataclass(frozen=True)
class Change:
    """One knob that is to be set."""

    before: Judgement
    value: str
    """What is written."""
    purpose: Purpose
    """What for; without the interface of the default route if setting it disrupts."""
    resources: Sequence[Resource]
    """What sets it, in this order."""

    @property
    def knob(self) -> Knob:
        """The row of the table."""
        return self.before.knob

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
        return before.reason
    if not before.differs:
        return before.answer == "met"
    if knob.settable != "runtime":
        return (
            "it is set on the kernel's command line: see `tailtap host bootline`"
            if knob.settable == "boot"
            else "tailtap cannot set it"
        )
    if getattr(knob.where, "held", False) and not measuring:
        return "a process must hold it: an experiment that names it in dut.tuning does"
    if knob.disruptive and not disruptive:
        return "setting it takes links down or stops what runs: say --disruptive"
    try:
        value = knob.wish(purpose, tree).value
        return Change(before, value, purpose, knob.where.changes(tree, purpose, value))
    except (Absent, Unreadable) as reason:
        return str(reason)


def _is_nothing(row: Judgement) -> bool:
    """Whether there is nothing to set; a knob that is only to compare may well differ."""
    return row.answer == "not-applicable" and not row.differs


def _not_now(knob: Knob) -> str:
    if knob.settable == "boot":
        return f"{knob.name} is set on the kernel's command line, not while the machine runs"
    return f"{knob.name} cannot be set by tailtap: `tailtap host audit {knob.name}` says what it is"
