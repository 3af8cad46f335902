"""What a model says against a value, in the words of whoever wrote the file.

pydantic's own sentences name types of Python, and never reach a user.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from tailtap.base.document import KeyPath
from tailtap.base.suggest import did_you_mean, shown

Detail: TypeAlias = Mapping[str, Any]
"""One of pydantic's `ErrorDetails`."""

WANTED: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "bool_parsing": lambda _: "true or false",
    "bool_type": lambda _: "true or false",
    "dict_type": lambda _: "a mapping, such as {key: value}",
    "finite_number": lambda _: "a finite number",
    "float_parsing": lambda _: "a number",
    "float_type": lambda _: "a number",
    "greater_than": lambda of: f"more than {of['gt']}",
    "greater_than_equal": lambda of: f"{of['ge']} or more",
    "int_from_float": lambda _: "a whole number",
    "int_parsing": lambda _: "a whole number",
    "int_parsing_size": lambda _: "a number of fewer digits",
    "int_type": lambda _: "a whole number",
    "less_than": lambda of: f"less than {of['lt']}",
    "less_than_equal": lambda of: f"{of['le']} or less",
    "list_type": lambda _: "a list, such as [a, b]",
    "literal_error": lambda of: str(of["expected"]),
    "mapping_type": lambda _: "a mapping, such as {key: value}",
    "model_type": lambda _: "a mapping, such as {key: value}",
    "string_too_long": lambda of: f"at most {of['max_length']} characters",
    "string_too_short": lambda of: _at_least(of["min_length"], "character"),
    "string_type": lambda _: "text",
    "too_long": lambda of: f"{of['max_length']} values at most",
    "too_short": lambda of: _at_least(of["min_length"], "value"),
    "tuple_type": lambda _: "a list, such as [a, b]",
}
"""What should stand there instead, by the kind of pydantic's error and its context."""


LESS_SAID = frozenset(
    kind for kind in WANTED if not kind.startswith(("string_too_", "greater_", "less_"))
)
"""Kinds of which the type of the key, in words, says more."""


def explain(
    detail: Detail,
    location: KeyPath,
    known: Callable[[KeyPath], Iterable[str]],
    takes: str | None = None,
) -> str:
    """The reason of one error at `location`.

    `known` tells the keys that may stand below a path, and `takes` what the value may be, in words.
    """
    if detail["type"] == "extra_forbidden":
        return f"unknown key: {did_you_mean(str(location[-1]), list(known(location[:-1])))}"
    return reason([detail], takes)


def reason(details: Sequence[Detail], takes: str | None = None) -> str:
    """The reason of the errors of one value, each of which speaks for one form that it may have.

    `takes` says in words what the value may be.
    """
    first = next((one for one in details if one["type"] not in WANTED), details[0])
    kind, value = first["type"], first["input"]
    if kind == "missing":
        return "this key is missing"
    if kind in ("value_error", "assertion_error"):
        return str(first["ctx"]["error"])
    if kind == "union_tag_not_found":
        return f"the key {str(first['ctx']['discriminator']).strip(chr(39))} is missing"
    if kind == "string_type" and isinstance(value, int | float | datetime.date):
        return f"{shown(value)} is no text: write '{str(value).lower()}' in quotes"
    if takes is None or kind not in LESS_SAID:
        known = [one for one in details if one["type"] in WANTED]
        forms = [WANTED[one["type"]](one.get("ctx", {})) for one in known]
        takes = " or ".join(dict.fromkeys(forms)) or "another value (docs/reference/experiment.md)"
    said = "there is no value" if value is None else f"{shown(value)} is wrong"
    return f"{said}, wanted: {takes}"


def _at_least(number: int, what: str) -> str:
    return f"at least {'one' if number == 1 else number} {what}{'' if number == 1 else 's'}"
