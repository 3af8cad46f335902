"""What whoever asked could ask for instead, by the name that it has there.

A message never spells an option. To a caller in Python `late` is a parameter; on the command line
it is an option, and how that is spelled is known to the command that runs (`cli/naming.py`).
Command lines to be typed are the same for everybody, and made here of their parts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

Value = str | int | bool | Sequence[str]


def _as_parameter(name: str) -> str:
    return name


_named: Callable[[str], str] = _as_parameter


def option(name: str) -> str:
    """What to call the parameter `name` in a message that is made now."""
    return _named(name)


@contextlib.contextmanager
def naming_options(named: Callable[[str], str]) -> Iterator[None]:
    """In the block, in all threads, `option` says what `named` says."""
    global _named  # noqa: PLW0603 (as a locale: one process speaks to one user)
    before, _named = _named, named
    try:
        yield
    finally:
        _named = before


def spelled(name: str) -> str:
    """The option of a command line that is called like the parameter `name`."""
    return f"--{name.rstrip('_').replace('_', '-')}"


def options(**given: Value) -> str:
    """Options as they are typed: one of True stands alone, one of several values is repeated."""
    words = []
    for name, value in given.items():
        if isinstance(value, bool):
            words += [spelled(name)] if value else []
        else:
            values = [value] if isinstance(value, str | int) else value
            words += [f"{spelled(name)} {one}" for one in values]
    return " ".join(words)


def command_line(command: str, *words: object, **given: Value) -> str:
    """A command of ours as it is typed, such as ``tailtap run a.yaml --resume``."""
    return " ".join(filter(None, ("tailtap", command, *map(str, words), options(**given))))
