"""Sizes of packets in bytes, check sequence included: one, a sequence, or a mix by its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, PlainSerializer, SerializationInfo

from tailtap.base.errors import InputError
from tailtap.base.schema import Written, as_value_error, as_written, quantity_pattern
from tailtap.base.units import SIZE_UNITS, parse_size

MIN_SIZE = 64
"""Smallest Ethernet frame in bytes, with its 4-byte frame check sequence."""
MAX_SIZE = 9018
"""Largest frame in bytes: 9000 bytes of payload, the Ethernet header and the check sequence."""

MIXES: Mapping[str, tuple[int, ...]] = {
    # Seven small, four middle, one large packet, as evenly mixed as twelve can be.
    "imix": (64, 594, 64, 64, 594, 64, 1518, 64, 594, 64, 594, 64),
}
"""Sequences that have a name: the Internet mix of seven 64 B, four 594 B and one 1518 B."""

SizeSpec: TypeAlias = int | str | tuple[int, ...]
"""A size, the name of a mix, or a sequence of sizes that is sent again and again."""


def header_bytes(version: int, tagged: bool) -> int:
    """What a packet of IP `version` has besides its UDP payload: headers, a VLAN tag or none, and
    the check sequence.
    """
    return 14 + 4 * tagged + (20 if version == 4 else 40) + 8 + 4


def least_size(version: int, tagged: bool) -> int:
    """Smallest packet that holds the headers of IP `version`, a VLAN tag or none, and the id."""
    return max(MIN_SIZE, header_bytes(version, tagged) + 5)


def sizes_of(spec: SizeSpec, least: int) -> tuple[int, ...]:
    """The sequence of sizes; those of a named mix are at least `least`, which holds the headers."""
    if isinstance(spec, str):
        return tuple(max(size, least) for size in MIXES[spec])
    return spec if isinstance(spec, tuple) else (spec,)


def parse_sizes(value: object) -> SizeSpec:
    """``64 B``, ``imix``, or several sizes: a list, or a text with commas.

    Raises `InputError` when it is none of these or a size is no Ethernet frame.
    """
    if isinstance(value, str) and value.strip() in MIXES:
        return value.strip()
    several: Sequence[object] | None = None
    if isinstance(value, list | tuple):
        several = value
    elif isinstance(value, str) and "," in value:
        several = value.split(",")
    if several is None:
        return _frame(value)
    if not several:
        raise InputError("an empty list of sizes sends nothing: write at least one")
    return tuple(_frame(size) for size in several)


def _frame(value: object) -> int:
    size = parse_size(value)
    if not MIN_SIZE <= size <= MAX_SIZE:
        raise InputError(
            f"{size} B is no Ethernet frame: with its check sequence one has "
            f"{MIN_SIZE} B to {MAX_SIZE} B"
        )
    return size


def _validate(value: object) -> object:
    with as_value_error():
        return parse_sizes(value)


def _write(spec: SizeSpec, info: SerializationInfo) -> Any:
    if isinstance(spec, str) or not as_written(info):
        return spec
    return f"{spec} B" if isinstance(spec, int) else [f"{size} B" for size in spec]


_ONE = quantity_pattern(SIZE_UNITS)
_SEVERAL = rf"^\s*({'|'.join(MIXES)}|{_ONE}(\s*,\s*{_ONE})*)\s*$"
_TEXT = {"type": "string", "pattern": _SEVERAL}
Sizes = Annotated[
    SizeSpec,
    BeforeValidator(_validate),
    PlainSerializer(_write),
    Written(
        "size, `imix`, or list of sizes",
        lambda value: value if isinstance(value, str) else f"{value} B",
        {"anyOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1}]},
    ),
]
"""Sizes in an experiment file."""
