"""What the parts of an experiment file share: strictness, and quantities with units."""

from __future__ import annotations

import contextlib
import re
import shlex
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    SerializationInfo,
)
from pydantic_core import CoreSchema, core_schema

from tailtap.base.errors import InputError
from tailtap.base.units import (
    RATE_UNITS,
    SIZE_UNITS,
    TIME_UNITS,
    format_rate,
    format_size,
    format_time,
    parse_rate,
    parse_size,
    parse_time,
)


class Strict(BaseModel):
    """A part of an experiment file: unknown keys and wrong types are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class NoOptions(Strict):
    """The options of a kind that has none."""


@contextlib.contextmanager
def as_value_error(prefix: str = "") -> Iterator[None]:
    """Turn an `InputError` into the `ValueError` that a model gives the place of."""
    try:
        yield
    except InputError as error:
        raise ValueError(f"{prefix}{error}") from error


def read_by(parse: Callable[[str], object]) -> AfterValidator:
    """A check of text that `parse` reads; it stays as it is written."""

    def check(text: str) -> str:
        with as_value_error():
            parse(text)
        return text

    return AfterValidator(check)


AS_WRITTEN: Mapping[str, bool] = {"as_written": True}
"""The context in which a model is dumped as an experiment file has it: quantities with units."""


def as_written(info: SerializationInfo) -> bool:
    """Whether a model is being dumped in the context `AS_WRITTEN`."""
    return bool(info.context and info.context.get("as_written"))


@dataclass(frozen=True, eq=False)  # by identity: unions of types ask for hashes
class Written:
    """How a value is written in a file, for the reference and the JSON Schema of experiments."""

    type: str
    """What it is, in words."""
    show: Callable[[Any], str] | None = None
    """A value as it is written; None where it is written as it is."""
    schema: Mapping[str, Any] | None = None
    """JSON Schema of what is written, instead of that of the value."""
    or_schema: Mapping[str, Any] | None = None
    """JSON Schema of another form in which the value may be written."""

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """The JSON Schema of the annotated type."""
        if self.schema is not None:
            return dict(self.schema)
        found = handler(core)
        return found if self.or_schema is None else {"anyOf": [found, dict(self.or_schema)]}


@dataclass(frozen=True)
class Matching:
    """A text of a certain form, told in words where it is not: a pattern means nothing to users."""

    pattern: str
    """A regular expression, of Python and of JSON Schema."""
    words: str
    """What the text should be, after "write"."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """The schema of the annotated type, with this check after it."""
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """The JSON Schema of the annotated type, with the pattern."""
        return {**handler(core), "pattern": self.pattern}

    def _check(self, text: str) -> str:
        if re.search(self.pattern, text) is None:
            raise ValueError(f"{text!r} does not do: write {self.words}")
        return text


def sorted_cpus(cpus: Sequence[int]) -> tuple[int, ...]:
    """CPUs in their order. Raises `ValueError` when one is named twice."""
    if len(set(cpus)) != len(cpus):
        raise ValueError(f"a CPU is named twice in {list(cpus)}")
    return tuple(sorted(cpus))


def name_words(most: int, example: str) -> str:
    """What a name of `most` characters may be, for `Matching`."""
    return f"at most {most} small letters, digits and -, with a letter first, such as {example}"


def _as_list(value: object) -> object:
    """One CPU is a list of one; a range is as the kernel writes it."""
    if isinstance(value, int) and not isinstance(value, bool):
        return (value,)
    if isinstance(value, str) and re.fullmatch(r"\s*[0-9]{1,4}(\s*[-,]\s*[0-9]{1,4})*\s*", value):
        raise ValueError(f"{value!r} is text: write a list of CPU numbers, such as [2, 3]")
    return value


def quantity_pattern(units: Mapping[str, int]) -> str:
    """A regular expression of JSON Schema for a number with one of `units`, without anchors."""
    words = "|".join(re.escape(unit) for unit in units)
    return rf"[0-9]+(\.[0-9]+)?(e[0-9]+)?\s*({words})"


def _written(what: str, show: Callable[[int], str], units: Mapping[str, int]) -> Written:
    pattern = rf"^\s*{quantity_pattern(units)}\s*$"
    return Written(what, show, {"type": "string", "pattern": pattern})


def _quantity(parser: Callable[[object], int]) -> BeforeValidator:
    def convert(value: object) -> object:
        with as_value_error():
            return parser(value)

    return BeforeValidator(convert)


def _with_unit(unit: str) -> PlainSerializer:
    def write(value: int | None, info: SerializationInfo) -> Any:
        return f"{value} {unit}" if as_written(info) and value is not None else value

    return PlainSerializer(write)


Rate = Annotated[
    int,
    _quantity(parse_rate),
    _with_unit("pkt/s"),
    _written("packet rate", format_rate, RATE_UNITS),
]
"""Packets per second, written ``10 kpkt/s``."""
Size = Annotated[
    int, _quantity(parse_size), _with_unit("B"), _written("size", format_size, SIZE_UNITS)
]
"""Bytes, written ``64 B``."""
Reserved = Annotated[
    Size | None,
    Field(
        description="For how much memory huge pages are reserved for the command, and given back. "
        "By default none.",
        examples=["1 GiB"],
    ),
]
"""Memory of a program of others."""
Time = Annotated[
    int, _quantity(parse_time), _with_unit("ns"), _written("time", format_time, TIME_UNITS)
]
"""Nanoseconds, written ``1.5 s``."""
Cpu = Annotated[int, Field(ge=0, le=8191), Written("CPU number")]
"""The number of a logical CPU."""
Cpus = Annotated[
    tuple[Cpu, ...],
    Field(strict=False, min_length=1),
    BeforeValidator(_as_list),
    AfterValidator(sorted_cpus),
    Written("CPU number, or list of them", or_schema={"type": "integer", "minimum": 0}),
]
"""Logical CPUs, ascending: one number, or a list of different ones."""
Port = Annotated[str, Matching(r"^[^\s/:]{1,15}$", "the name of a network interface, such as eth0")]
"""The name of a network interface; dev_valid_name() of the kernel."""
Ports = Annotated[
    tuple[Port, Port],
    Field(strict=False),
    Written(
        "list of two interfaces",
        schema={
            "type": "array",
            "items": {"type": "string", "maxLength": 15},
            "minItems": 2,
            "maxItems": 2,
        },
    ),
]
"""Two interfaces, in front of the DuT and behind it."""


def check_command(template: str, placeholders: Sequence[str]) -> str:
    """`template` as it is. Raises `ValueError` when it is no command or names something unknown."""
    check_fields(template, placeholders)
    try:
        words = shlex.split(template)
    except ValueError as error:
        raise ValueError(f"{template!r} is no command: {error}") from error
    if not words:
        raise ValueError("an empty command does nothing")
    return template


def check_fields(template: str, placeholders: Sequence[str]) -> None:
    """Raises `ValueError` when a brace is alone or something else than a name stands in braces."""
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise ValueError(f"{template!r} is no template: {error}") from error
    fields = [field for _, field, _, _ in parts]
    unknown = [field for field in fields if field not in (None, *placeholders)]
    if unknown:
        known = ", ".join(f"{{{name}}}" for name in placeholders)
        raise ValueError(
            f"{{{unknown[0]}}} stands for nothing: known are {known}; write {{{{ for a brace"
        )
    for _, field, form, conversion in parts:
        if form or conversion:
            raise ValueError(f"{{{field}}} has no formats: write the name alone")


def fill_in(template: str, values: Mapping[str, object]) -> list[str]:
    """The words of the command with everything filled in; a value stays within its word."""
    return [word.format_map(values) for word in shlex.split(template)]
