"""A YAML file as plain data that still knows on which line each value stands.

Only what JSON can say is allowed, plus comments: no tags, no anchors, no duplicate keys. So a
file has one meaning, and every value has exactly one place.

What a model says against a value, in the words of whoever wrote the file.

pydantic's own sentences name types of Python, and never reach a user.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from tailtap.base.errors import InputError, NotRead, OfAnotherKind, WrongKey, did_you_mean, shown
from tailtap.base.foreign import read_bytes

KeyPath = tuple[str | int, ...]
"""Where a value stands: keys of mappings and positions in lists, from the outside in."""

MAX_BYTES = 1_000_000
"""An experiment file is written by people; anything larger is some other file."""
MAX_DEPTH = 50
"""How deep values may lie in mappings and lists."""
MAX_DIGITS = 20
"""Of whole numbers: what is computed with them has room for 64 bits."""
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
"""A zero byte, which no name of a file has, and half of a character of UTF-16."""


@dataclass(frozen=True)
class FileKind:
    """What a file is called in messages."""

    name: str
    shape: str
    """What its content is, in a sentence."""


EXPERIMENT = FileKind("experiment", "an experiment is a mapping with at least 'name' and 'traffic'")


class Misfit(ValueError):
    """A value that does not fit with others; key paths begin at the model that says so."""

    def __init__(self, at: KeyPath, reason: str, beside: Sequence[KeyPath] = ()) -> None:
        """The value at `at` does not fit with those below the paths of `beside`, for `reason`."""
        self.at = at
        self.beside = tuple(beside)
        super().__init__(reason)


Rule: TypeAlias = tuple[object, KeyPath, str, Sequence[KeyPath]]
"""Whether something is wrong, where, why, and what the value there does not fit with."""


def require_fit(*rules: Rule) -> None:
    """Raise `Misfit` for the first rule that is broken."""
    for is_wrong, at, why, beside in rules:
        if is_wrong:
            raise Misfit(at, why, beside)


@dataclass(frozen=True)
class Document:
    """The content of an experiment file, and where each value came from."""

    name: str
    data: Mapping[str, Any]
    places: Mapping[KeyPath, str]

    def place(self, path: KeyPath) -> str:
        """``file.yaml:7`` for the value at `path`, or for what encloses it when it is absent."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.places:
                return self.places[path[:length]]
        return self.name

    def wrong(self, path: KeyPath, what: str) -> WrongKey:
        """The error for the value at `path`, with file, line and key."""
        return WrongKey(dotted(path), what).at(self.place(path))

    def with_value(self, path: KeyPath, value: object, place: str) -> Document:
        """A copy with `value` at `path`; mappings on the way are made where they are missing.

        Raises `InputError` when something that is no mapping stands in the way.
        """
        places = {at: where for at, where in self.places.items() if at[: len(path)] != path}
        for length in range(1, len(path)):
            places.setdefault(path[:length], place)
        places[path] = place
        return replace(self, data=set_in(self.data, path, value, place), places=places)


def set_in(data: Mapping[str, Any], path: KeyPath, value: object, place: str) -> dict[str, Any]:
    """A copy of `data` with `value` at `path`. Raises `InputError` naming `place`."""
    if len(path) > MAX_DEPTH:
        raise InputError(f"a key path has {MAX_DEPTH} parts at most").at(place)
    copy: dict[str, Any] = dict(data)
    key = str(path[0])
    if len(path) == 1:
        copy[key] = value
        return copy
    inner = copy.get(key, {})
    if not isinstance(inner, Mapping):
        raise InputError(f"{key!r} holds a single value, no keys").at(dotted(path)).at(place)
    copy[key] = set_in(inner, path[1:], value, place)
    return copy


def dotted(path: Iterable[str | int]) -> str:
    """A key path as people write it: ``vary.traffic.rate[1]``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def load(path: Path, kind: FileKind = EXPERIMENT, *, named: bool = False) -> Document:
    """Read a file of that kind, which the user `named` or which is a stranger's.

    Raises `InputError` with file, line and key.
    """
    try:
        content = read_bytes(path, None if named else path.parent, MAX_BYTES)
        text = content.decode("utf-8-sig")  # editors of other systems begin with a mark
    except UnicodeDecodeError as error:
        raise OfAnotherKind(f"{kind.name} file", "it is not UTF-8 text").at(path) from error
    except IsADirectoryError as error:
        raise InputError(f"this is a folder: give the {kind.name} file (YAML)").at(path) from error
    except OSError as error:
        raise NotRead(error, f"cannot read the {kind.name}").at(path) from error
    except ValueError as error:
        raise OfAnotherKind(f"{kind.name} file", error).at(path) from error
    return parse(text, str(path), kind)


def parse(text: str, name: str, kind: FileKind = EXPERIMENT) -> Document:
    """Parse the text of a file called `name` in messages. Raises `InputError`."""
    try:
        loader = _Loader(text, name)
        try:
            node = loader.get_single_node()
            places = {} if node is None else dict(_places(node, (), name))
            data = None if node is None else loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = "" if mark is None else f":{mark.line + 1}"
        raise InputError(f"not valid YAML: {_fault(error, text)}").at(name + line) from error
    except yaml.YAMLError as error:
        raise InputError(f"not valid YAML: {' '.join(str(error).split())}").at(name) from error
    except ValueError as error:  # dates such as 2024-99-99, built by the loader
        raise InputError(f"not valid YAML: {error}").at(name) from error
    if not isinstance(data, dict):
        raise InputError(kind.shape).at(f"{name}:1")
    return Document(name, data, places)


def _fault(error: yaml.MarkedYAMLError, text: str) -> str:
    """What is wrong with the YAML, in words of whoever wrote it where these are known."""
    start = "" if error.context_mark is None else f" line {error.context_mark.line + 1}"
    begun = f" that begins on{start}" if start else ""
    context, problem = error.context or "", error.problem or ""
    at = "" if error.problem_mark is None else text[error.problem_mark.index :][:1]
    if at == "\t":
        return "there is a tab: indent with blanks"
    if "cannot start any token" in problem:
        return f"write text that begins with {at} in quotes"
    if "quoted scalar" in context:
        return f"the quote{begun} has no end"
    if context.endswith("flow node"):
        return "the end of a bracket is missing"
    if "flow" in context:
        return f"a comma or the end of the bracket{begun} is missing"
    if "block" in context and at in "}]":
        return f"nothing opens the bracket that {at} closes"
    if "block" in context:
        return f"this line does not fit into the block{begun}: check how it is indented"
    if problem.startswith("mapping values"):
        return "a colon too many, or none on the line before: write text with ': ' in it in quotes"
    if problem.startswith("could not find expected"):
        return f"a colon with a blank behind it is missing in{start}"
    if "another document" in problem:
        return "it has a second document behind ---: leave one"
    if "constructor" in problem:
        return "a tag (!) is not supported"
    return f"{context} {problem}".strip()


def parse_value(text: str, place: str) -> object:
    """The value of a ``--set`` option, read as YAML. Raises `InputError` naming `place`."""
    return parse(f"value: {text}", place).data["value"]


class _Loader(yaml.SafeLoader):
    """Refuses references, what is no text, and what nobody nests so deeply."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text)
        self._called = name
        self._depth = 0

    def get_event(self) -> Any:
        """The next part of the text. Raises `InputError` for what JSON cannot say."""
        event = super().get_event()  # type: ignore[no-untyped-call]
        line = 0 if event.start_mark is None else event.start_mark.line + 1
        place = f"{self._called}:{line}"
        if isinstance(event, yaml.ScalarEvent) and _NO_TEXT.search(event.value):
            raise InputError(f"{event.value!a} has a zero byte or half a character").at(place)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise InputError("anchors and aliases (&, *) are not supported").at(place)
        self._depth += isinstance(event, yaml.CollectionStartEvent)
        self._depth -= isinstance(event, yaml.CollectionEndEvent)
        if self._depth > MAX_DEPTH:
            raise InputError(f"more than {MAX_DEPTH} lists and mappings in a row").at(place)
        return event


def _places(node: yaml.Node, path: KeyPath, name: str) -> Iterator[tuple[KeyPath, str]]:
    place = f"{name}:{node.start_mark.line + 1}"
    yield path, place
    if node.tag.endswith(":int") and len(node.value) > MAX_DIGITS:
        raise InputError(f"a number has {MAX_DIGITS} digits at most").at(dotted(path)).at(place)
    if isinstance(node, yaml.SequenceNode):
        for position, item in enumerate(node.value):
            yield from _places(item, (*path, position), name)
    elif isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode) or not key_node.tag.endswith(":str"):
                what = getattr(key_node, "value", "")
                wrong = InputError(f"the key {what!r} is not a word to YAML: write it in quotes")
                raise wrong.at(f"{name}:{line}")
            key = key_node.value
            if key in seen:
                at = dotted((*path, key))
                twice = InputError(f"given twice, first on line {seen[key]}").at(at)
                raise twice.at(f"{name}:{line}")
            seen[key] = line
            yield from _places(value_node, (*path, key), name)
            yield (*path, key), f"{name}:{line}"


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
