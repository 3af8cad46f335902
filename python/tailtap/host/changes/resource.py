"""What tailtap changes on a machine: each thing is read, planned, applied, read back and undone.

A resource is a small dataclass of JSON values. The journal stores them, so that another process
can undo the change from the journal alone.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, ClassVar, Self, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from tailtap.base.errors import MachineError

Value = Any
"""The state of a resource as JSON: None, a number, a text, a list or an object."""


def told(kind: Any, value: object) -> Any:
    """What a journal says, as of that type. Raises `TypeError` for anything else."""
    try:
        return _adapter(kind).validate_python(value)
    except ValidationError as error:
        raise TypeError(str(error)) from error


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


@dataclass(frozen=True)
class Resource(abc.ABC):
    """One thing on a machine that tailtap changes. A kind is a subclass and a row in `KINDS`."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    kind: ClassVar[str]
    """Its kind in the journal and in the output of ``tailtap clean``."""
    survives: ClassVar[bool] = False
    """Whether the change is still there after a reboot."""

    @property
    @abc.abstractmethod
    def label(self) -> str:
        """Its name in the journal, in messages and in the output of ``tailtap clean``."""

    @property
    def claims(self) -> Sequence[str]:
        """What of the machine only one measurement may change at a time.

        Empty for objects that tailtap makes for itself, whose names are its own.
        """
        return ()

    @abc.abstractmethod
    def read(self) -> Value:
        """Its state now. Raises `TailtapError` when it cannot be changed at all."""

    def plan(self) -> Value:
        """Its state after `apply`, as far as it is known before: it is there."""
        return True

    @abc.abstractmethod
    def apply(self) -> Value:
        """Change it and read it back. Raises `MachineError` when the kernel says otherwise.

        Returns what the kernel said, if `undo` needs to know it.
        """

    @abc.abstractmethod
    def undo(self, old: Value, applied: Value = None) -> str | None:
        """Put back the state `old`, whatever part of `apply` was done; a second call does nothing.

        `applied` is what `apply` returned, or None when it did not come so far. What somebody else
        has changed in the meantime is left: a sentence says so. Raises `MachineError` when it
        cannot be put back.
        """

    def pending(self, old: Value, applied: Value = None) -> bool:
        """Whether there is anything to undo."""
        return bool(self.read() != old)

    def as_json(self) -> dict[str, Any]:
        """What `parse` needs to make it again."""
        return asdict(self)

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Self:
        """The resource that `as_json` described. Raises `TypeError` for other fields or values."""
        found: Self = told(cls, fields)
        return found

    @classmethod
    def check(cls, old: Value, applied: Value) -> None:
        """Raise `TypeError` for states that `read` and `apply` never return."""
        told(get_type_hints(cls.read)["return"], old)
        if applied is not None:
            told(get_type_hints(cls.apply)["return"], applied)

    @classmethod
    def existing(cls) -> Sequence[Resource]:
        """Those on this machine that are known to be tailtap's by their names alone."""
        return ()


def left_as_it_is(changed: Sequence[str]) -> str | None:
    """What `undo` says of what somebody else has changed; None of nothing."""
    return f"somebody else changed {', '.join(changed)}: it is left as it is" if changed else None


@dataclass(frozen=True)
class SameValue(Resource):
    """Several places that are to have one value. What somebody else has changed is left."""

    @property
    @abc.abstractmethod
    def wanted(self) -> Value:
        """What each place is to have."""

    @abc.abstractmethod
    def read(self) -> dict[str, Any]:
        """What each place has that is there."""

    @abc.abstractmethod
    def set(self, place: str, value: Value) -> None:
        """Give a place a value. Raises `MachineError`."""

    def called(self, place: str) -> str:
        """A place in messages."""
        return place

    @abc.abstractmethod
    def told(self, value: Value) -> str:
        """A value in messages."""

    def plan(self) -> Value:
        return dict.fromkeys(self.read(), self.wanted)

    def apply(self) -> None:
        """Set those that differ. Raises `MachineError` for one that stays as it was."""
        for place, now in self.read().items():
            if now != self.wanted:
                self.set(place, self.wanted)
        for place, now in self.read().items():
            if now != self.wanted:
                raise MachineError(
                    f"{self.called(place)} should have {self.told(self.wanted)}, and has "
                    f"{self.told(now)}"
                )

    def undo(self, old: Mapping[str, Any], applied: None = None) -> str | None:
        """Give those that still are as we made them what they had before."""
        changed: list[str] = []
        for place, now in self.read().items():
            before = old.get(place, now)
            if now == self.wanted != before:
                self.set(place, before)
            elif now != before:
                words = f"{self.told(now)}, before tailtap {self.told(before)}"
                changed.append(f"{self.called(place)} ({words})")
        return left_as_it_is(changed)

    def pending(self, old: Mapping[str, Any], applied: None = None) -> bool:
        return any(now != old.get(place, now) for place, now in self.read().items())


@dataclass(frozen=True)
class Joint(Resource):
    """A kind of which many are changed at once in much less time than one after the other.

    `read_all`, `apply_all` and `undo_all` say what each of these means.
    """

    def apply(self) -> None:
        self.apply_all([self])

    def undo(self, old: Value, applied: Value = None) -> str | None:
        return self.undo_all([(self, old)])[0]

    @classmethod
    @abc.abstractmethod
    def read_all(cls, many: Sequence[Self]) -> Sequence[Value]:
        """The state of each."""

    @classmethod
    @abc.abstractmethod
    def apply_all(cls, many: Sequence[Self]) -> None:
        """Change all of them, of which nothing has to be known to undo it."""

    @classmethod
    @abc.abstractmethod
    def undo_all(cls, many: Sequence[tuple[Self, Value]]) -> Sequence[str | None]:
        """Put back the state of each, as `undo` does, with what it says."""
