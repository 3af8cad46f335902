"""What strangers do to files: one change or a few, chosen by a seeded generator.

JSON and YAML are changed as what they say and as text, other files as bytes. The same seed gives
the same bytes.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import yaml

DEEP = "@deep@"
"""Stands for a value that JSON's own writer cannot write: lists in lists."""
DEPTHS = (200, 5_000, 100_000)
WORDS = (
    "", " ", "[", "[red]x[/red]", "[/]", "\x1b[31mred\x1b[0m", "two\nlines", "nul\0", "\ud800",
    "../../../x", "/etc/passwd", "0", "-1", "1e400", "nan", "tt-0", "a" * 100_000, "é" * 300, "{}",
    "p50", "done", "ingress", "NaN", "0x", "0-4000000000", "1 kpkt/s", "%s", "{0}", "\u202e",
)  # fmt: skip
NUMBERS = (
    0, 1, -1, 2, 3, 0.5, -0.0, 1e-300, 1e308, 2**31, -(2**31), 2**32, 2**53 + 1, 2**63 - 1, 2**63,
    -(2**63), 2**64, 10**400, -(10**400), math.nan, math.inf, -math.inf, 10**12, 10**18,
)  # fmt: skip
OTHERS: tuple[Any, ...] = (
    None,
    True,
    False,
    [],
    {},
    [None],
    {"": None},
    [[]],
    [{}],
    ["a"],
    [1],
    {"a": 1},
    DEEP,
)
BLOCK = 64
"""Bytes that are repeated, removed or overwritten at once, at most."""


def hostile(random: Random) -> Any:
    """A value that nobody expects where it stands."""
    return copy.deepcopy(random.choice(random.choice((WORDS, NUMBERS, OTHERS))))


def places(content: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values in JSON."""
    found = [path]
    if isinstance(content, dict):
        inner: Any = content.items()
    else:
        inner = enumerate(content) if isinstance(content, list) else ()
    for key, value in inner:
        found += places(value, (*path, key))
    return found


def spread(paths: list[tuple[Any, ...]], random: Random) -> tuple[Any, ...]:
    """One of the paths: those near the root as often as the many below them."""
    depth = random.choice(sorted({len(path) for path in paths}))
    return random.choice([path for path in paths if len(path) == depth])


def changed(content: Any, random: Random) -> Any:
    """JSON with one value changed, removed, put in twice, or in the place of another."""
    path = spread(places(content), random)
    if not path:
        return hostile(random)
    content = copy.deepcopy(content)
    parent = content
    for key in path[:-1]:
        parent = parent[key]
    key = path[-1]
    value = parent[key]
    match random.randrange(8):
        case 0:
            del parent[key]
        case 1 if isinstance(parent, dict):
            parent[random.choice(WORDS)] = parent.pop(key)
        case 1 | 2:
            other: Any = content
            for step in random.choice(places(content)):
                other = other[step]
            parent[key] = copy.deepcopy(other)
        case 3:
            parent[key] = random.choice(([value], {"a": value}, [value, value], str(value)))
        case 4 if isinstance(value, int | float) and not isinstance(value, bool):
            third = value / 3 if abs(value) < 1 << 60 else value // 3
            parent[key] = random.choice((-value, value * 1000, value + 1, value - 1, third))
        case 4 if isinstance(value, list) and value:
            parent[key] = random.choice((value[::-1], value[:1], value * 2, value[1:]))
        case 4 if isinstance(value, str):
            parent[key] = random.choice((value + random.choice(WORDS), value[:1], value.upper()))
        case _:
            parent[key] = hostile(random)
    return content


def damaged(data: bytes, random: Random) -> bytes:
    """Bytes that are flipped, cut, repeated, removed or of somebody else."""
    found = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 8))):
        at = random.randrange(len(found) + 1)
        # Heads and ends say most.
        if random.random() < 0.4:
            at = random.choice((min(at % 96, len(found)), max(0, len(found) - at % 96)))
        end = min(len(found), at + random.randrange(1, BLOCK))
        match random.randrange(7):
            case 0:
                del found[at:]
            case 1:
                found[at:at] = random.randbytes(end - at)
            case 2:
                found[at:at] = found[at:end] * random.choice((1, 2, 50))
            case 3:
                del found[at:end]
            case 4:
                found[at:end] = bytes([random.choice((0, 255, 127, 128))]) * (end - at)
            case _ if at < len(found):
                found[at] ^= 1 << random.randrange(8)
    return bytes(found)


def as_json(content: Any, random: Random) -> bytes:
    """JSON as bytes; what it cannot say in Unicode is escaped."""
    text = json.dumps(content)
    depth = random.choice(DEPTHS)
    return text.replace(f'"{DEEP}"', "[" * depth + "]" * depth).encode()


def as_yaml(content: Any, random: Random) -> bytes:
    text: str = yaml.safe_dump(content)
    depth = random.choice(DEPTHS[:2])
    text = text.replace(f"'{DEEP}'", "[" * depth + "]" * depth)
    return text.encode(errors="surrogatepass")


def as_lines(content: Any, random: Random) -> bytes:
    rows = content if isinstance(content, list) else [content]
    return b"".join(as_json(row, random) + b"\n" for row in rows)


def lines(data: bytes) -> Any:
    return [json.loads(line) for line in data.splitlines()]


Form = tuple[Callable[[bytes], Any], Callable[[Any, Random], bytes]]
FORMS: dict[str, Form] = {
    ".json": (json.loads, as_json),
    ".loop": (json.loads, as_json),
    ".jsonl": (lines, as_lines),
    ".yaml": (yaml.safe_load, as_yaml),
}
"""How files are read and written by the end of their name; others are bytes."""


def mutated(data: bytes, name: str, random: Random) -> bytes:
    """The bytes of the file `name`, changed as fits what it holds."""
    read, write = FORMS.get(Path(name).suffix, (None, as_json))
    if read is None or random.random() > 0.85:
        return damaged(data, random)
    content = read(data)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        content = changed(content, random)
    return write(content, random)
