"""A terminal of so many columns, and what a command shows on it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import struct
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO
from unittest import mock

import pytest

from tailtap.cli import main

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@contextlib.contextmanager
def terminal(columns: int) -> Iterator[tuple[TextIO, list[bytes]]]:
    """A pseudo terminal of this width, and what has been written to it once it is closed."""
    main_side, other_side = os.openpty()
    fcntl.ioctl(other_side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    written: list[bytes] = []

    def read() -> None:
        with contextlib.suppress(OSError):  # the other side is closed
            while part := os.read(main_side, 1 << 16):
                written.append(part)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        with os.fdopen(other_side, "w", encoding="utf-8") as stream:
            yield stream, written
    finally:
        reader.join()
        os.close(main_side)


def shown(columns: int, function: Callable[[], object]) -> list[str]:
    """The lines that `function` prints on a terminal of this width, also those that it redraws."""
    with (
        mock.patch.dict(os.environ, {"TERM": "xterm-256color"}),
        mock.patch.dict(os.environ),
        terminal(columns) as (stream, written),
        contextlib.redirect_stdout(stream),
        contextlib.redirect_stderr(stream),
    ):
        os.environ.pop("COLUMNS", None)
        function()
        stream.flush()
    return re.split(r"[\r\n]+", CONTROL.sub("", b"".join(written).decode()))


def command(*arguments: str | Path) -> None:
    """Runs `tailtap` in this process; whatever it answers, it says no traceback."""
    words = ["tailtap", *map(str, arguments)]
    with mock.patch.object(sys, "argv", words), pytest.raises(SystemExit):
        main()
