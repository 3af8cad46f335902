"""The audit: each knob's value on a machine, what it should be for a purpose, and the answer.

A pure function of the machine's files. The kernel's version decides nothing: a knob that is not
there does not apply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tailtap.base.units import ranges
from tailtap.host.changes.kernel_values import summary
from tailtap.host.knobs import select
from tailtap.host.knobs.knob import Knob
from tailtap.host.knobs.line import not_built
from tailtap.host.knobs.purpose import Purpose
from tailtap.host.knobs.tree import Absent, Tree, Unreadable
from tailtap.records.machine import Answer, Judged, Tuning
from tailtap.records.printed import AuditRecord, AuditRow

ANSWERS: tuple[Answer, ...] = ("not-met", "unknown", "met", "not-applicable")


@dataclass(frozen=True)
class Judgement:
    """What the audit says of one knob."""

    knob: Knob
    answer: Answer
    value: str | None
    """What is there, in one line; None when there is nothing or it cannot be read."""
    wanted: str | None
    reason: str
    """Why it does not apply or is not known; of others what the knob does."""
    differs: bool = False
    """Whether the value is another than the wish, also of knobs that are only to compare."""

    def record(self) -> Judged:
        """What a run keeps of it."""
        knob = self.knob
        return Judged(
            group=knob.group,
            answer=self.answer,
            value=self.value,
            wanted=self.wanted,
            why=self.reason,
            source=knob.source,
        )

    @property
    def row(self) -> AuditRow:
        """A row of ``tailtap host audit --json``."""
        knob = self.knob
        return AuditRow(
            name=knob.name,
            group=knob.group,
            value=self.value,
            wanted=self.wanted,
            answer=self.answer,
            why=self.reason,
            source=knob.source,
            settable=knob.settable,
            disruptive=knob.disruptive,
            risk=knob.risk,
            removes=list(knob.removes),
            recommended=knob.recommended,
            elsewhere=knob.elsewhere,
        )


@dataclass(frozen=True)
class Audit:
    """All judgements for a purpose, in the order of the table."""

    purpose: Purpose
    rows: Sequence[Judgement]

    @property
    def met(self) -> bool:
        """Whether no knob that can be changed here is known to be other than it should be."""
        return all(row.answer != "not-met" or row.knob.elsewhere for row in self.rows)

    def count(self, answer: Answer) -> int:
        """How many knobs have that answer."""
        return sum(row.answer == answer for row in self.rows)

    def tuning(
        self,
        rows: Sequence[Judgement],
        *,
        before: dict[str, str | None] | None = None,
        left: Mapping[str, str],
    ) -> Tuning:
        """What a run keeps of these `rows`, of what was there `before`, and what was `left` out."""
        return Tuning(
            **self.head(),
            before=before or {},
            left=dict(left),
            audit={row.knob.name: row.record() for row in rows},
        )

    def head(self) -> dict[str, Any]:
        """What it was judged for, as JSON."""
        purpose = self.purpose
        return {
            "role": purpose.role,
            "cpus": ranges(purpose.cpus),
            "housekeeping": ranges(purpose.housekeeping),
            "interfaces": list(purpose.interfaces),
        }

    @property
    def record(self) -> AuditRecord:
        """What ``tailtap host audit --json`` prints."""
        return AuditRecord(**self.head(), rows=[row.row for row in self.rows], met=self.met)


def audit(tree: Tree, purpose: Purpose, names: Sequence[str] = ()) -> Audit:
    """Judge the knobs or groups `names`, all by default.

    Raises `InputError` for a name that is neither.
    """
    return Audit(purpose, [judge(knob, tree, purpose) for knob in select(names)])


def judge(knob: Knob, tree: Tree, purpose: Purpose) -> Judgement:
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
        return Judgement(knob, "not-applicable", value, None, str(absent))
    except Unreadable as unreadable:
        return Judgement(knob, "unknown", value, wanted, str(unreadable))
    except ValueError:
        reason = f"tailtap cannot read such a value, {form} was expected"
        return Judgement(knob, "unknown", value, wanted, reason)
    if not met and not knob.recommended:
        reason = f"it is there to compare, not recommended: {knob.why}"
        return Judgement(knob, "not-applicable", value, wanted, reason, differs=True)
    answer: Answer = "met" if met else "not-met"
    return Judgement(knob, answer, value, wanted, knob.why, differs=not met)


def _require_built(knob: Knob, tree: Tree, purpose: Purpose) -> None:
    """Raises `Absent` for a word that would do nothing; whether others apply, their files say."""
    if knob.settable == "boot" and knob.word is not None:
        option = not_built(tree, knob.word(purpose, tree))
        if option is not None:
            raise Absent(f"the kernel was built without {option}")
