"""The fields of the model in words: type, default and example."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from annotated_types import Ge, Le, Lt
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from tailtap.base.document import KeyPath, Misfit, explain
from tailtap.base.schema import Written


def written(field: FieldInfo) -> Written | None:
    """How values of this field are written, where its type says so."""
    return next((one for one in _metadata(field) if isinstance(one, Written)), None)


def type_text(field: FieldInfo) -> str:
    """The type of a field in words."""
    told = written(field)
    if told is not None and told.type != "CPU number":
        return told.type
    if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
        return "mapping"
    text = told.type if told is not None else _type_text(field.annotation)
    bounds = list(_bounds(field))
    return f"{text}, {' '.join(bounds)}" if bounds else text


def takes(field: FieldInfo | None) -> str | None:
    """What a field takes, as a message says it: its type in words and an example."""
    if field is None:
        return None
    words = type_text(field)
    if words.startswith("`") or not field.examples:  # these are all that there is
        return words.replace("`", "")
    return f"{words.replace('`', '')}, such as {example_text(field.examples[0])}"


@contextlib.contextmanager
def as_misfit(
    at: KeyPath, model: type[BaseModel], known: Iterable[str] = (), beside: Sequence[KeyPath] = ()
) -> Iterator[None]:
    """Turn the first thing that is wrong with a value of a model, at `at`, into a `Misfit`.

    `known` are the keys that it may have, unless they are those of the model.
    """
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        location = first["loc"]
        wanted = takes(model.model_fields.get(str(location[0]))) if len(location) == 1 else None
        reason = explain(first, location, lambda _: known or model.model_fields, wanted)
        raise Misfit((*at, *location), reason, beside) from error


def default_text(field: FieldInfo) -> str | None:
    """The default of a field as it is written; None for one without, or with nothing in it."""
    if field.is_required():
        return None
    value = field.get_default(call_default_factory=True)
    told = written(field)
    if isinstance(value, BaseModel) and told is None:
        return None
    if value is None or value in ({}, [], ()):
        return None
    if told is not None and told.show is not None:
        return told.show(value)
    return example_text(list(value) if isinstance(value, tuple) else value)


def example_text(value: object) -> str:
    """A value as it is written in YAML, on one line."""
    if value == "":
        return '""'
    if isinstance(value, bool):
        return json.dumps(value)
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000)
    return text.removesuffix("...\n").strip()


def models_in(annotation: object) -> Iterator[type[BaseModel]]:
    """The models that a value of this type can be."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from models_in(inner)


def _metadata(field: FieldInfo) -> Iterator[object]:
    """The annotations of a field's type, and of the members of a union."""
    yield from field.metadata
    yield from _annotated(field.annotation)


def _annotated(annotation: object) -> Iterator[object]:
    if get_origin(annotation) is Annotated:
        inner, *metadata = get_args(annotation)
        for one in metadata:
            yield from one.metadata if isinstance(one, FieldInfo) else [one]
        yield from _annotated(inner)
    elif get_origin(annotation) in (Union, UnionType):
        for inner in get_args(annotation):
            yield from _annotated(inner)


def _bounds(field: FieldInfo) -> Iterator[str]:
    """The range of a number in words."""
    low: object = None
    high: object = None
    for one in _metadata(field):
        if isinstance(one, Ge):
            low = one.ge
        elif isinstance(one, Le):
            high = one.le
        elif isinstance(one, Lt):
            high = int(str(one.lt)) - 1
    if low is not None and high is not None:
        yield f"{low} to {high}"
    elif low is not None:
        yield f"at least {low}"


def _type_text(annotation: Any) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_text(inner[0])
    if origin in (Union, UnionType):
        return " or ".join(_type_text(one) for one in inner if one is not NoneType)
    if origin is Literal:
        return " or ".join(f"`{one}`" for one in inner)
    if origin is dict:
        return "mapping"
    names = {bool: "`true` or `false`", int: "whole number", str: "text"}
    return names.get(annotation, "mapping")
