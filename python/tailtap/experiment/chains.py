"""Chains of nodes, as `dut.links` has them, and the ways through what they join."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, TypeAlias

from pydantic import AfterValidator

from tailtap.base.schema import Written

IN, OUT = "in", "out"
"""What is before the first node of a path, and behind its last one."""

_NAME = re.compile(r"[a-z][a-z0-9-]{0,11}")
_BETWEEN = re.compile(r"\s+-\s+")


def _is_chain(text: str) -> str:
    """Raises `ValueError` unless this is names with ` - ` between them."""
    names = nodes_of(text)
    wrong = next((name for name in names if not _NAME.fullmatch(name)), None)
    if wrong is not None or len(names) < 2:
        raise ValueError(
            f"{text!r} joins no nodes: write names with ' - ' between them, such as in - fw - out"
        )
    if IN in names[1:] or OUT in names[:-1]:
        raise ValueError(f"{text!r}: {IN} only begins such a chain, and {OUT} ends it")
    for one, other in pairwise(names):
        if one == other or (one, other) == (IN, OUT):
            raise ValueError(f"{text!r}: {one} and {other} cannot be joined")
    return text


def nodes_of(chain: str) -> list[str]:
    """The names in ``in - fw - out``."""
    return _BETWEEN.split(chain.strip())


Links: TypeAlias = Annotated[
    list[Annotated[str, AfterValidator(_is_chain)]], Written("list of chains of names")
]


def joined(links: Sequence[str]) -> dict[str, list[str]]:
    """Where packets may go from each node, and from `in`; in the order of the links."""
    found: dict[str, dict[str, None]] = {IN: {}, OUT: {}}
    for chain in links:
        for one, other in pairwise(nodes_of(chain)):
            found.setdefault(one, {})[other] = None
            found.setdefault(other, {})
            if one != IN and other != OUT:
                found[other][one] = None
    return {name: list(others) for name, others in found.items()}


def simple_ways(links: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, ...]]:
    """The ways from `in` to `out` that pass no node twice, without these two.

    Each takes a time that is a power of the number of nodes, however many ways there are.
    """
    path = [IN]
    pending = [iter(links[IN])]
    while pending:
        following = next(pending[-1], None)
        if following is None:
            pending.pop()
            path.pop()
        elif following == OUT:
            yield tuple(path[1:])
        elif following not in path and _reaches_out(links, following, path):
            path.append(following)
            pending.append(iter(links[following]))


def _reaches_out(links: Mapping[str, Sequence[str]], start: str, without: Sequence[str]) -> bool:
    seen, waiting = {start, *without}, [start]
    while waiting:
        for other in links[waiting.pop()]:
            if other == OUT:
                return True
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    return False
