"""The published form of each record, and the page of all fields.

`python -m tailtap.records.schemas` prints the page; `python -m tailtap.records.schemas DIR` writes
DIR/NAME.schema.json.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo, fields

from tailtap import records
from tailtap.base.files import write_text
from tailtap.records.record import Open, Record, tag_of

DIALECT = "https://json-schema.org/draft/2020-12/schema"
TERSE = 8
"""Words: what says no more of a part repeats the name of its field."""
HEAD = """# Records

For authors of programs that read what tailtap writes.

Made from the program's own types by `make docs`; a test fails when it is stale.

JSON files and what commands print as JSON name their form in `schema`. This page lists the other
fields, first those whose names say all; `python -m tailtap.records.schemas DIR` writes a JSON
Schema of each record into DIR, and a wheel brings them in share/tailtap/schemas. Later versions may
add fields.

The schemas have all types, and which fields can be null. Here `[]` marks an array, `{}` an object
with any names, `|` an alternative, a question mark a field that is left out where there is nothing
to say; what is text, a number or a truth value is named alone, and what an object has stands below
it. Fields that end in `_ns` are nanoseconds.
"""


def _all() -> Sequence[type[Record]]:
    """Those of this folder by the names of their forms; of one name, the simplest."""
    modules = pkgutil.iter_modules(records.__path__, f"{records.__name__}.")
    found = [
        kind
        for module in modules
        for kind in vars(importlib.import_module(module.name)).values()
        if isinstance(kind, type) and issubclass(kind, Record) and kind.__struct_config__.tag
    ]
    found.sort(key=lambda kind: len(kind.__mro__), reverse=True)
    by_tag = {tag_of(kind): kind for kind in found}
    return [by_tag[tag] for tag in sorted(by_tag)]


RECORDS = _all()
"""All that is stored or printed with a `schema`, in the order of the page."""
HEADED = {kind.__name__: tag_of(kind) for kind in RECORDS}
"""Those records have a section of their own, also where they are parts of others."""


def file_of(kind: type[Record]) -> str:
    """The file of a record's schema: ``evaluation.schema.json``."""
    return f"{tag_of(kind).removeprefix('tailtap.').partition('/')[0]}.schema.json"


def schema(kind: type[Record]) -> dict[str, Any]:
    """The JSON Schema of a record."""
    return {
        "$schema": DIALECT,
        "title": tag_of(kind),
        **_ordered(msgspec.json.schema(_closed(kind, {}))),
    }


def _closed(part: Any, made: dict[Any, Any]) -> Any:
    """The same type with what is known of each open part in its place, as msgspec tells its hooks
    of an open part and not what it is of; `made` has the records that were seen.
    """
    if part in made:
        return made[part]
    kind, inner = get_origin(part), get_args(part)
    if kind is Open:
        return _closed(inner[0], made)
    if kind in (Union, UnionType):
        return Union[tuple(_closed(one, made) for one in inner)]  # noqa: UP007  # of a tuple
    if kind in (list, dict):
        return kind[tuple(_closed(one, made) for one in inner)]
    if isinstance(part, type) and issubclass(part, Record):
        made[part] = part  # also within itself
        own = fields(part)
        types = [_closed(one.type, made) for one in own]
        if types != [one.type for one in own]:
            closed = [(one.name, kind, _default(one)) for one, kind in zip(own, types, strict=True)]
            config = part.__struct_config__
            made[part] = msgspec.defstruct(
                part.__name__, closed, kw_only=True, tag_field=config.tag_field, tag=config.tag,
                namespace={"__doc__": part.__doc__},
            )  # fmt: skip
        return made[part]
    return part


def _default(field: FieldInfo) -> Any:
    if field.default_factory is msgspec.NODEFAULT:
        return msgspec.field(default=field.default)
    return msgspec.field(default_factory=field.default_factory)


def _ordered(part: Any) -> Any:
    """The same with alternatives in one order: Python takes unions of the same types for one, and
    gives them the order of whichever was made first."""
    if isinstance(part, list):
        return [_ordered(one) for one in part]
    if not isinstance(part, dict):
        return part
    found = {name: _ordered(value) for name, value in part.items()}
    if "anyOf" in found:
        found["anyOf"].sort(key=lambda one: (one.get("type") == "null", json.dumps(one)))
    return found


def page() -> str:
    """docs/reference/records.md."""
    own: dict[str, Any] = {}
    shared: dict[str, Any] = {}
    for kind in RECORDS:
        definitions = schema(kind)["$defs"]
        own[kind.__name__] = definitions.pop(kind.__name__)
        shared |= definitions
    shared = {name: shared[name] for name in sorted(shared.keys() - HEADED.keys())}
    used = Counter(
        name
        for definition in (*own.values(), *shared.values())
        for field in definition.get("properties", {}).values()
        for name in _parts(field)
    )
    within = {name: part for name, part in shared.items() if used[name] == 1}
    parts = [HEAD]
    for name, definition in own.items():
        parts += [f"## {HEADED[name]}\n", f"{_text(definition)}\n", *_rows(definition, within), ""]
    parts.append("## Parts\n\nThose of several records.\n")
    for name, part in shared.items():
        if name not in within:
            parts += [f"### {name}\n", f"{_text(part)}\n", *_rows(part, within), ""]
    return "\n".join(parts).rstrip() + "\n"


def _text(definition: Mapping[str, Any]) -> str:
    return " ".join(str(definition.get("description", "")).split()).replace("``", "`")


def _parts(field: Mapping[str, Any]) -> Iterator[str]:
    """The names of the parts that a field holds."""
    if "$ref" in field:
        yield str(field["$ref"]).rpartition("/")[2]
    inner = [*field.get("anyOf", ()), field.get("items"), field.get("additionalProperties")]
    for one in inner:
        if isinstance(one, Mapping):
            yield from _parts(one)


def _rows(
    definition: Mapping[str, Any], within: Mapping[str, Any], indent: str = ""
) -> Iterator[str]:
    """The fields of a record, each part in `within` below its field: first the plain ones."""
    required = definition.get("required", ())
    alike: dict[tuple[str, str, str], list[str]] = {}
    for name, field in definition.get("properties", {}).items():
        if name != "schema":  # the heading says it
            shown, content = f"`{name}`", _type(field, within)
            shown = shown if name in required else f"{shown}?"
            if not content.strip("{}[]"):  # a plain value, or several
                shown, content = shown + content, ""
            below = next((part for part in _parts(field) if part in within), "")
            part = _text(within[below]) if below else ""
            said = field.get("description") or (part if len(part.split()) > TERSE else "")
            alike.setdefault((content, said, below), []).append(shown)
    plain = [
        _row(names, content)
        for (content, said, below), names in alike.items()
        if not said and not below
    ]
    if plain:
        yield f"{indent}- {'; '.join(plain)}"
    for (content, said, below), names in alike.items():
        if said or below:
            separator = "" if not said else ". " if content else ": "
            yield f"{indent}- {_row(names, content)}{separator}{said}"
        if below:
            yield from _rows(within[below], within, f"{indent}  ")


def _row(names: Sequence[str], content: str) -> str:
    return ", ".join(names) + (f": {content}" if content else "")


def _type(field: Mapping[str, Any], within: Mapping[str, Any]) -> str:
    """What a field holds, in the notation of the page's head; empty for a plain value, and for a
    part that stands below its field."""
    if "$ref" in field:
        name = str(field["$ref"]).rpartition("/")[2]
        heading = HEADED.get(name, name)
        link = f"[{heading}](#{re.sub('[^a-z0-9-]', '', heading.lower())})"
        return "" if name in within else link
    if "enum" in field:
        return "|".join(f"`{value}`" for value in field["enum"])
    if "anyOf" in field:
        return "|".join(filter(None, (_type(one, within) for one in field["anyOf"])))
    kind = field.get("type")
    if kind == "array":
        inner = _type(field.get("items") or {}, within)
        return f"({inner})[]" if "|" in inner else f"{inner}[]"
    if kind == "object":
        values = field.get("additionalProperties")
        return f"{{{_type(values, within) if isinstance(values, Mapping) else ''}}}"
    return ""


def write(folder: Path) -> None:
    """Write all schemas into a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind in RECORDS:
        write_text(folder / file_of(kind), f"{json.dumps(schema(kind), indent=1)}\n")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        write(Path(sys.argv[1]))
    else:
        print(page(), end="")
