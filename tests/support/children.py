"""Processes beside a test, which end with it."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def child(command: Sequence[str | Path], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """It runs while the body does, whose end kills it."""
    with subprocess.Popen(command, **options) as running:
        try:
            yield running
        finally:
            running.kill()


def free_port() -> int:
    """Where one of them can listen."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextlib.contextmanager
def speaking(command: Sequence[str | Path], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """One that has said a line, that it is ready; had it failed, it would have said nothing."""
    with child(command, stdout=subprocess.PIPE, **options) as running:
        assert running.stdout is not None and running.stdout.readline()
        yield running
