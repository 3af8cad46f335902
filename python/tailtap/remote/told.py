"""Errors that cross a stream: the class and the fields there are the class and the fields here.

``{"kind": CLASS, "status": EXIT STATUS, "fields": {…}}``. A class that this end has not is told as
the one of its exit status, and what is no error as a `MachineError`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast, get_type_hints

import msgspec

from tailtap.base.errors import Bug, InputError, MachineError, TailtapError, restored
from tailtap.records.record import Anything, Record, parsed
from tailtap.remote.session import Json


class Told(Record, kw_only=True):
    """An error, as the other end tells it."""

    kind: str
    status: int
    fields: Anything


def told(error: TailtapError) -> Json:
    """What the other end is told of an error."""
    kind = type(error)
    known = {name: vars(error)[name] for name in get_type_hints(kind) if name in vars(error)}
    fields = msgspec.to_builtins(known, str_keys=True)
    return {"kind": kind.__name__, "status": kind.exit_status, "fields": fields}


def error_of(said: Json, name: str) -> TailtapError:
    """The error that the other end, called `name` in messages, tells."""
    try:
        error = parsed(name, said, Told, MachineError)
        known = {kind.__name__: kind for kind in _kinds(TailtapError)}
        kind = known.get(error.kind) or by_status(error.status)
        fields = parsed(name, error.fields, _fields_of(kind), MachineError)
    except MachineError as nonsense:
        return nonsense
    return restored(kind, msgspec.structs.asdict(fields)).at(name)


def by_status(status: object) -> type[TailtapError]:
    """The class of an error of which little but its exit status is known."""
    if status == Bug.exit_status:
        return Bug
    return InputError if status == InputError.exit_status else MachineError


def _fields_of(kind: type[TailtapError]) -> type[Record]:
    """The fields of an error; JSON has lists for tuples."""
    hints = [(name, hint) for name, hint in get_type_hints(kind).items() if name != "exit_status"]
    made = msgspec.defstruct(kind.__name__, hints, bases=(Record,), kw_only=True)
    return cast("type[Record]", made)


def _kinds(kind: type[TailtapError]) -> Iterator[type[TailtapError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _kinds(below)
