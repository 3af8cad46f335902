"""What records of ours are made of, and how one is read: checked, or refused by its field.

A record is checked where its file is read, so that whoever uses it can rely on it. Fields that it
does not name may be anything.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, NoReturn, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Meta

from tailtap.base.errors import InputError, TailtapError, shown
from tailtap.base.files import read_json

MOST = 2**62
"""No time in ns and no count of ours comes near it; sums and differences of two fit 64 bits."""
PARTS_OF_A_NAME = 200
"""Characters of a path to a field that are told."""
WANTED = {
    "array": "a list, such as [a, b]",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "object": "a mapping, such as {key: value}",
    "str": "text",
}
"""What msgspec calls a type, and what a person does."""
LIMITS = {">": "more than ", "<": "less than ", ">=": "at least ", "<=": "at most "}
_PLACE = re.compile(r" - at `(?P<key>key` in `)?\$(?P<path>[^`]*)`")
"""Where an error of msgspec is, behind its text; what is within something open comes first."""
_PART = re.compile(r"\.(?P<name>\w+)|\[(?P<index>[0-9]+)\]|\[\.\.\.\]")
_FIELD = re.compile(r"Object (?P<what>missing required|contains unknown) field `(?P<name>.*)`")
_FORM = re.compile(r"Expected `(?P<types>[^`]+)`(?: (?P<sign>[<>]=?) (?P<limit>\S+))?(?P<more>.*)")


class Record(msgspec.Struct, kw_only=True):
    """A record, or a part of one."""


def says(description: str) -> Meta:
    """What a field means, for the schema and the documentation."""
    return Meta(description=description)


def meanings(record: type[msgspec.Struct]) -> dict[str, str]:
    """What the fields of a record mean, of those that say it."""
    fields = get_type_hints(record, include_extras=True).items()
    found: dict[str, tuple[Any, ...]] = {
        name: getattr(field, "__metadata__", ()) for name, field in fields
    }
    return {name: meta[-1].description for name, meta in found.items() if meta}


Whole = Annotated[int, Meta(gt=-MOST, lt=MOST)]
Count = Annotated[int, Meta(ge=0, lt=MOST)]
Width = Annotated[int, Meta(ge=1, lt=MOST)]
Number = Annotated[float, Meta(gt=-1e300, lt=1e300)]
Share = Annotated[float, Meta(ge=0, le=1)]
Cpu = Annotated[int, Meta(ge=0, lt=1 << 16)]
CpuText = Annotated[str, Meta(pattern=r"^[0-9]{1,5}$")]
InnerFile = Annotated[str, Meta(pattern=r"^(?!/)(?!(.*/)?\.\.(/|$))[^\0]*[^\0/.][^\0]*$")]
"""A path of a file in the folder of its record."""
Texts = list[str]
Anything = dict[str, Any]

R = TypeVar("R", bound=Record)
Known_co = TypeVar("Known_co", bound=Record, covariant=True)


class Open(Generic[Known_co]):
    """A part of a record to which kinds of others may add fields of their own."""

    def __init__(self, known: Known_co, whole: Mapping[str, Any]) -> None:
        """`known` is what is the same for all kinds, and `whole` everything that was said."""
        self.known = known
        self.whole = whole


class Notice(msgspec.Struct, frozen=True):
    """A warning: a stable code for programs, a sentence for people."""

    code: str
    message: str


@dataclass(frozen=True)
class Entry:
    """What a warning's code means, and what to do about it."""

    code: str
    meaning: str
    action: str
    invalidates: bool = False
    note: bool = False
    """Whether it says what was not done, and puts no number in doubt."""


class Sequenced(Record, kw_only=True):
    """A percentile of anything."""

    p: Share
    value: Whole


class Extremes(Record, kw_only=True, omit_defaults=True):
    """The least, the mean and the most of anything, as far as they are known."""

    min: Whole | None = None
    mean: Number | None = None
    max: Whole | None = None


def tag_of(kind: type[Record]) -> str:
    """What a record says as its `schema`."""
    return str(kind.__struct_config__.tag)


def parsed(
    place: object, content: object, kind: type[R], error_type: type[TailtapError] = InputError
) -> R:
    """The record that `content` is, which came from JSON.

    Raises an error naming the `place` and the field when it is no such record.
    """
    try:
        return msgspec.convert(content, kind, dec_hook=_opened)
    except msgspec.ValidationError as error:
        _refuse(place, content, kind, str(error), error_type)


def made(source: object, kind: type[R]) -> R:
    """The record whose fields are the attributes of a value of ours."""
    return msgspec.convert(source, kind, from_attributes=True)


def unfilled(kind: type[R], **known: object) -> R:
    """A record of which no more than `known` is said yet: all other fields are None."""
    return kind(**dict.fromkeys(kind.__struct_fields__) | known)


def opened(place: object, content: Mapping[str, Any], kind: type[R]) -> Open[R]:
    """The open part of a record that `content` is. Raises `InputError` like `parsed`."""
    return Open(parsed(place, content, kind), content)


def as_json(record: Record) -> dict[str, Any]:
    """The JSON of a record: its fields in the order of their definition."""
    content: dict[str, Any] = msgspec.to_builtins(record, enc_hook=_closed)
    return content


def copied(record: R) -> R:
    """A copy that has nothing in common with the record."""
    return msgspec.convert(as_json(record), type(record), dec_hook=_opened)


def mark(*parts: object) -> str:
    """A text that is the same for the same content, and for no other."""
    try:
        text = msgspec.json.encode(parts)
    except UnicodeEncodeError:  # a path in it is no UTF-8
        text = json.dumps(msgspec.to_builtins(parts)).encode()
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def printed(record: msgspec.Struct) -> str:
    """A record as commands print it: a line of JSON."""
    return json.dumps(msgspec.to_builtins(record), allow_nan=False)


def read(path: Path, kind: type[R]) -> R:
    """The record in a file of JSON. Raises `InputError` naming the file and the field."""
    return parsed(path, read_json(path), kind)


def read_if_there(path: Path, kind: type[R]) -> R | None:
    """As `read`; None where there is no file. Raises `InputError` for one that is damaged."""
    return read(path, kind) if os.path.lexists(path) else None


def _opened(kind: Any, content: Any) -> Open[Any]:
    [known] = get_args(kind)
    try:
        return Open(msgspec.convert(content, known, dec_hook=_opened), content)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None  # so that msgspec adds the place of the whole


def _closed(value: object) -> object:
    if isinstance(value, Open):
        return value.whole
    raise NotImplementedError  # msgspec's way to hear that nobody knows the type


def _refuse(
    place: object, content: object, kind: type[Record], text: str, error_type: type[TailtapError]
) -> NoReturn:
    """Say what msgspec says in our words, with the whole path to the field."""
    places = list(_PLACE.finditer(text))
    reason = text[: places[0].start()] if places else text
    path: list[str | int] = []
    value: Any = content
    for part in _PART.finditer("".join(place["path"] for place in reversed(places))):
        if part["name"]:
            path.append(part["name"])
        elif part["index"]:
            path.append(int(part["index"]))
        else:
            path.append(next(key for key in value if _alone(content, path, key, kind) == text))
        value = value[path[-1]]
    field = _FIELD.fullmatch(reason)
    if field:
        path.append(field["name"])
        reason = f"this key is {'missing' if field['what'].startswith('missing') else 'not known'}"
    elif places and places[0]["key"]:
        reason = "one of its keys is wrong"
    else:
        reason = _words(reason, value)
    named = ".".join(map(str, path))[:PARTS_OF_A_NAME]
    raise error_type(f"{place}: {named}: {reason}" if named else f"{place}: {reason}")


def _alone(content: Any, path: Sequence[str | int], key: str, kind: type[Record]) -> str:
    """What is said when of the mapping at `path` only `key` is left."""
    try:
        msgspec.convert(_only(content, path, key), kind, dec_hook=_opened)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


def _only(content: Any, path: Sequence[str | int], key: str) -> Any:
    if not path:
        return {key: content[key]}
    changed = content.copy()
    changed[path[0]] = _only(content[path[0]], path[1:], key)
    return changed


def _words(reason: str, value: object) -> str:
    """What is wrong with a value, and what is wanted."""
    said = "there is no value" if value is None else f"{shown(value)} is wrong"
    form = _FORM.fullmatch(reason)
    if form is None:  # of a check of ours, or a number that no machine has
        return said if reason.startswith(("Invalid", "Number")) else reason
    if form["sign"]:
        return f"{said}, wanted: {LIMITS[form['sign']]}{form['limit']}"
    if form["more"].startswith((" of length", " matching")):
        return said
    wanted = " or ".join(WANTED[name] for name in form["types"].split(" | ") if name in WANTED)
    return f"{said}, wanted: {wanted}"
