"""What the audit finds at one knob, and a change as the journal alone tells it."""

from __future__ import annotations

import json

from tailtap.host.changes.clean import resource_of
from tailtap.host.changes.journal import Entry
from tailtap.host.changes.resource import Resource, Value
from tailtap.host.knobs import named
from tailtap.host.knobs.purpose import Purpose
from tailtap.host.knobs.tree import Tree
from tailtap.host.tuning.audit import judge
from tailtap.records.printed import AuditRow


def judged(name: str, tree: Tree, purpose: Purpose) -> AuditRow:
    knob = named(name)
    assert knob is not None
    return judge(knob, tree, purpose)


def retold(made: Resource, old: Value) -> Resource:
    """The change as a later process reads it, which has nothing but the line of the journal."""
    entry = Entry(1, made.kind, made.label, old, made.plan(), made.as_json())
    again = resource_of(Entry(**json.loads(json.dumps(entry.__dict__))))
    assert again == made
    return again
