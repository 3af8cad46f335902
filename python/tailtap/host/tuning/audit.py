"""The audit: each knob's value on a machine, what it should be for a purpose, and the answer.

A pure function of the machine's files. The kernel's version decides nothing: a knob that is not
there does not apply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tailtap.base.units import ranges
from tailtap.host.changes.kernel_values import summary
from tailtap.host.knobs import select
from tailtap.host.knobs.knob import Knob
from tailtap.host.knobs.line import not_built
from tailtap.host.knobs.purpose import Purpose
from tailtap.host.knobs.tree import Absent, Tree, Unreadable
from tailtap.records.machine import Answer, Judged, Tuning
from tailtap.records.printed import AuditRecord, AuditRow
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
