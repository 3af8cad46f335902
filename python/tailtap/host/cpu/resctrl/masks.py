"""Masks of ways, and the file ``schemata``; Documentation/filesystems/resctrl.rst."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

CACHE_LINES = ("L3", "L3CODE", "L3DATA")

Values = Mapping[str, Mapping[str, str]]
"""What a file ``schemata`` says: of each line, such as ``L3`` or ``MB``, the value by cache."""


def parse_schemata(text: str) -> dict[str, dict[str, str]]:
    """The values in a file ``schemata``; of a group that has none yet, nothing."""
    found: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        name, _, caches = line.strip().partition(":")
        parts = (part.partition("=") for part in caches.split(";"))
        found[name] = {cache.strip(): value.strip() for cache, equals, value in parts if equals}
    return found


def number(line: str, value: str) -> int:
    """A value of a line: ways are hexadecimal."""
    return int(value, 16 if line in CACHE_LINES else 10)


def is_mask(ways: int, least: int, *, sparse: bool) -> bool:
    """Whether the kernel takes `ways`: at least `least` in a row, and all of them unless `sparse`.

    As the kernel's own check in fs/resctrl/ctrlmondata.c.
    """
    lowest = ways & -ways
    row = ((ways + lowest) & ~ways) - lowest if ways else 0
    return row.bit_count() >= max(1, least) and (sparse or row == ways)


def own_ways(
    rests: Sequence[int], taken: int, count: int, least: int, *, sparse: bool
) -> int | None:
    """The lowest `count` ways in a row that all of `rests` have, and that are not in `taken`.

    What remains of each of `rests` must be a mask, too. None when there are no such ways.
    """
    for low in range(max(rests).bit_length() - count + 1):
        row = ((1 << count) - 1) << low
        if not row & taken and all(
            row & rest == row and is_mask(rest & ~row, least, sparse=sparse) for rest in rests
        ):
            return row
    return None
