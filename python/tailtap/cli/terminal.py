"""Sentences for a person: folded between words on a terminal, whole lines elsewhere.

A pipe and a file get each sentence as one line, so that `grep` finds it. Texts come from files and
names of others as well: what would move the cursor, colour, hide or reorder text, or begin another
line, is shown as an escape such as ``\\x1b``.
"""

from __future__ import annotations

import io
import logging
import os
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable
from math import inf
from typing import TYPE_CHECKING, TextIO

from tailtap.base.units import unbroken

if TYPE_CHECKING:
    from tailtap.records.record import Notice

UNKNOWN_WIDTH = 80
"""Columns of a terminal that does not say how wide it is."""
_CONTROLS = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Controls of ASCII and Latin-1, ends of lines and directions of Unicode, halves of characters."""


def printable(text: str) -> str:
    """`text` on one line, with everything that is no text as an escape."""
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)


def escape_undecodable() -> None:
    """Let standard output and error show as an escape what their encoding has not."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def width_of(stream: TextIO | None) -> int | None:
    """How many columns the terminal behind `stream` has; None when it is no terminal."""
    if stream is None or not stream.isatty():
        return None
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    try:
        return os.get_terminal_size(stream.fileno()).columns or UNKNOWN_WIDTH
    except OSError:  # also what is raised where there is no descriptor
        return UNKNOWN_WIDTH


def say(text: str = "", *, stream: TextIO | None = None, flush: bool = False) -> None:
    """Print a sentence, by default on standard output."""
    stream = sys.stdout if stream is None else stream
    width = width_of(stream)
    text = printable(text)
    print(text if width is None else folded(text, width), file=stream, flush=flush)


def warn(text: str) -> None:
    """Print a sentence on standard error, at once."""
    say(text, stream=sys.stderr, flush=True)


def warn_of(notices: Iterable[Notice], of: str = "") -> None:
    """Print warnings that are stored with results, or with a part `of` them."""
    for notice in notices:
        warn(f"warning: {of}{notice.message} [{notice.code}]")


class Telling(logging.Handler):
    """Prints what library code has to tell while it works: it logs it, and prints nothing."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a sentence on standard error."""
        warn(f"tailtap: {record.getMessage()}")


def unless(quiet: bool) -> Callable[[str], None]:
    """What prints a sentence on standard error, but nothing if `quiet`."""
    return lambda text: None if quiet else warn(text)


def steps(command: str, *, quiet: bool) -> Callable[[str], None]:
    """What says that `command` is at a step; nothing if `quiet`."""
    return lambda step: unless(quiet)(f"{command}: {step}")


def now_and_then(say_step: Callable[[str], None]) -> Callable[[str], None]:
    """The same for many steps, such as runs: on a terminal a second lies between two lines."""
    said = -inf

    def step(text: str) -> None:
        nonlocal said
        if not sys.stderr.isatty() or time.monotonic() - said > 1:
            said = time.monotonic()
            say_step(text)

    return step


def page(text: str) -> None:
    """Print what is longer than the terminal by the reader's pager (PAGER, else less)."""
    import click

    is_long = text.count("\n") >= shutil.get_terminal_size().lines - 1
    (click.echo_via_pager if is_long else click.echo)(text)


def beginning(text: str, *, json: bool, quiet: bool, **more: object) -> Callable[[], None]:
    """What says that a command that lasts has begun: as JSON, or `text` unless `quiet`."""

    def begun() -> None:
        if json:
            from json import dumps

            print(dumps({"event": "ready", **more}), flush=True)
        elif not quiet:
            warn(text)

    return begun


def say_whole(*texts: str) -> None:
    """Print what is copied, such as paths, on standard output, each as one line."""
    for text in texts:
        print(printable(text))


def folded(text: str, width: int) -> str:
    """A sentence in lines of at most `width` columns; all but the first are indented.

    A word that is longer stays whole, such as a path: it can be copied.
    """
    return "\n".join(words(text, width, hanging="  ")) if len(text) > width else text


class _Wrapper(textwrap.TextWrapper):
    """Breaks paths behind slashes, where it may break words."""

    def _split(self, text: str) -> list[str]:
        found = [re.split(r"(?<=\w/)(?=[\w.]{3})", part) for part in super()._split(text)]
        return [piece for pieces in found for piece in pieces if piece]


def words(
    text: str,
    width: int,
    *,
    hanging: str = "",
    break_words: bool = False,
    break_at_hyphens: bool = False,
) -> list[str]:
    """The lines of one sentence, all indented as it is; all but the first by `hanging` as well."""
    indent = text[: len(text) - len(text.lstrip())]
    wrapper = (_Wrapper if break_words else textwrap.TextWrapper)(
        max(width, len(indent) + len(hanging) + 1),
        subsequent_indent=indent + hanging,
        break_long_words=break_words,
        break_on_hyphens=break_words or break_at_hyphens,
    )
    return [line.replace("\xa0", " ") for line in wrapper.wrap(unbroken(text))]
