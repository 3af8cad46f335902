"""What the parts of an experiment file share: strictness, and quantities with units."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from tailtap.errors import InputError
from tailtap.units import parse_rate, parse_size, parse_time


class Strict(BaseModel):
    """A part of an experiment file: unknown keys and wrong types are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


@contextlib.contextmanager
def as_value_error(prefix: str = "") -> Iterator[None]:
    """Turn an `InputError` into the `ValueError` that a model gives the place of."""
    try:
        yield
    except InputError as error:
        raise ValueError(f"{prefix}{error}") from error


def _quantity(parser: Callable[[object], int]) -> BeforeValidator:
    def convert(value: object) -> object:
        with as_value_error():
            return parser(value)

    return BeforeValidator(convert)


Rate = Annotated[int, _quantity(parse_rate)]
"""Packets per second, written ``10 kpkt/s``."""
Size = Annotated[int, _quantity(parse_size)]
"""Bytes, written ``64 B``."""
Time = Annotated[int, _quantity(parse_time)]
"""Nanoseconds, written ``1.5 s``."""
Cpu = Annotated[int, Field(ge=0, le=8191)]
"""The number of a logical CPU."""
Port = Annotated[str, Field(pattern=r"^[^\s/:]{1,15}$")]
"""The name of a network interface; dev_valid_name() of the kernel."""
Ports = Annotated[tuple[Port, Port], Field(strict=False)]
"""Two interfaces, in front of the DuT and behind it."""
