"""Processes beside a test, which end with it; what comes true by and by; and one that is killed.

Whether a process sleeps the kernel's counts of it say. One that is killed at a step of its work is
played in this process.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest


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


T = TypeVar("T")
PATIENCE_SECONDS = 200.0
LOOK_SECONDS = 1.0


def until(done: Callable[[], T]) -> T:
    """What is said as soon as that is true; else what is said in the end."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := done()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def sleeps(pid: int) -> bool:
    """Whether the process is woken up by nothing for a while; it may be on its way to sleep."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    before, now = -1, _switches(pid)
    while before != now and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
        before, now = now, _switches(pid)
    return before == now


def _switches(pid: int) -> int:
    """How often its threads began to run."""
    found = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        lines = status.read_text(encoding="utf-8").splitlines()
        found += sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)
    return found


Step = tuple[object, str]
"""What does a step: an object, and the name of its function."""


class Killed(BaseException):
    """The process has been killed: whatever it does afterwards does not happen."""


@contextlib.contextmanager
def dying(at: int, *steps: Step) -> Iterator[None]:
    """From step `at` on none of `steps` does anything; what is within ends then."""
    taken = count()
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Killed):
        for owner, name in steps:
            patch.setattr(owner, name, _until(at, taken, getattr(owner, name)))
        yield


def _until(at: int, taken: Iterator[int], go_on: Callable[..., object]) -> Callable[..., object]:
    def step(*arguments: object, **options: object) -> object:
        if next(taken) >= at:
            raise Killed
        return go_on(*arguments, **options)

    return step
