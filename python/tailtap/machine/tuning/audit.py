"""The audit: each knob's value on a machine, what it should be for a purpose, and the answer.

A pure function of the machine's files. The kernel's version decides nothing: a knob that is not
there does not apply.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tailtap.cpulist import ranges
from tailtap.machine.knobs import select
from tailtap.machine.knobs.knob import Knob
from tailtap.machine.knobs.line import not_built
from tailtap.machine.knobs.purpose import Purpose
from tailtap.machine.knobs.tree import Absent, Tree, Unreadable
from tailtap.machine.values import summary

SCHEMA = "tailtap.audit/1"
STORED = ("group", "answer", "value", "wanted", "why", "source")
"""What a run stores of each judgement."""
Answer = Literal["met", "not-met", "not-applicable", "unknown"]
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

    def as_json(self) -> dict[str, Any]:
        """A row of ``tailtap host audit --json``."""
        knob = self.knob
        return {
            "name": knob.name,
            "group": knob.group,
            "value": self.value,
            "wanted": self.wanted,
            "answer": self.answer,
            "why": self.reason,
            "source": knob.source,
            "settable": knob.settable,
            "disruptive": knob.disruptive,
            "risk": knob.risk,
            "removes": list(knob.removes),
            "recommended": knob.recommended,
            "elsewhere": knob.elsewhere,
        }


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

    def head(self) -> dict[str, Any]:
        """What it was judged for, as JSON."""
        purpose = self.purpose
        return {
            "role": purpose.role,
            "cpus": ranges(purpose.cpus),
            "housekeeping": ranges(purpose.housekeeping),
            "interfaces": list(purpose.interfaces),
        }

    def as_json(self) -> dict[str, Any]:
        """What ``tailtap host audit --json`` prints."""
        return {
            "schema": SCHEMA,
            **self.head(),
            "rows": [row.as_json() for row in self.rows],
            "met": self.met,
        }


def audit(tree: Tree, purpose: Purpose, names: Sequence[str] = ()) -> Audit:
    """Judge the knobs or groups `names`, all by default.

    Raises `InputError` for a name that is neither.
    """
    return Audit(purpose, [judge(knob, tree, purpose) for knob in select(names)])


def stored(rows: Sequence[Judgement]) -> dict[str, dict[str, Any]]:
    """Judgements by their knobs, as ``run.json`` has them."""
    return {row.knob.name: {key: row.as_json()[key] for key in STORED} for row in rows}


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
