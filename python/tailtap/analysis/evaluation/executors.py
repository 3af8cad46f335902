"""The seam of executors: where the tasks of `evaluate_many` run. This machine's threads are one."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any, Protocol, Self

from tailtap.base.errors import InputError


class Task(Protocol):
    """A function call under way; futures of `concurrent.futures` and of Dask are such."""

    def add_done_callback(self, fn: Callable[[Any], object], /) -> object:
        """Call `fn` from any thread once the task has ended, however it did."""

    def cancelled(self) -> bool:
        """Whether it was cancelled, by us or by whoever runs it."""

    def exception(self, timeout: float | None = None, /) -> BaseException | None:
        """What an ended task raised. Raises `TimeoutError` after so many seconds without answer."""

    def result(self, timeout: float | None = None, /) -> Any:
        """What an ended task returned. Raises `TimeoutError` likewise."""

    def cancel(self) -> object:
        """Do not begin it, if that is still possible."""


class Executor(Protocol):
    """Runs functions that depend on nothing but their arguments and on files that stay."""

    def __enter__(self) -> Self:
        """Begin."""

    def __exit__(self, *error: object) -> None:
        """Drop what has not begun."""

    def prepare(self, paths: Sequence[Path]) -> None:
        """Raise `MachineError` unless tasks can run and read `paths`, as `place` calls them."""

    def place(self, path: Path) -> Path:
        """`path` of this process as a task finds it, and as its errors call it."""

    def slots(self) -> int:
        """How many tasks keep it busy."""

    def submit(self, function: Callable[..., object], *arguments: object) -> Task:
        """Run `function`; arguments that are ended tasks stand for their results."""

    def error(self, task: Task) -> BaseException | None:
        """What an ended task raised. Raises `MachineError` when it was lost."""

    def result(self, task: Task) -> Any:
        """What an ended task returned. Raises `MachineError` when it was lost."""

    def check(self) -> None:
        """Raise `MachineError` when tasks under way will never end."""

    def explain(self, error: BaseException) -> str:
        """What an unexpected exception of a task means, in one line."""


def explain(error: BaseException) -> str:
    """The type and the first line of an exception."""
    lines = str(error).strip().splitlines()
    return ": ".join([type(error).__name__, *lines[:1]])


_current = threading.local()


def stopped() -> bool:
    """Whether the task that asks runs in a thread whose executor was left, so that it is in vain.

    Ctrl-C reaches the main thread alone.
    """
    stop: threading.Event | None = getattr(_current, "stop", None)
    return stop is not None and stop.is_set()


@contextlib.contextmanager
def _whole() -> Iterator[None]:
    """Ctrl-C waits for the end of this: within a pool's own code it would leave a lock taken."""
    usual = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(usual):
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
    if came:
        usual(*came[0])


class Threads:
    """This machine: evaluations release the GIL, so that threads of this process suffice."""

    def __init__(self, jobs: int | None = None) -> None:
        """Run `jobs` tasks at once; by default one for each CPU that the process may use."""
        if jobs is not None and jobs < 1:
            raise InputError(f"{jobs} jobs do nothing: at least one is needed")
        self._jobs = jobs or len(os.sched_getaffinity(0))
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(self._jobs, thread_name_prefix="tt-evaluate")

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *error: object) -> None:
        """Drop what has not begun, and tell the rest to stop."""
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)

    def prepare(self, paths: Sequence[Path]) -> None:
        """Nothing: a capture that cannot be read is the error of its own pair."""

    def place(self, path: Path) -> Path:
        """The same: tasks work in the folder that this process works in."""
        return path

    def slots(self) -> int:
        """One task for each thread, and one to follow."""
        return 2 * self._jobs

    def submit(self, function: Callable[..., object], *arguments: object) -> Task:
        """Run `function` in a thread."""
        with _whole():
            return self._pool.submit(self._call, function, arguments)

    def _call(self, function: Callable[..., object], arguments: Sequence[Any]) -> object:
        _current.stop = self._stop
        return function(*(a.result() if isinstance(a, Future) else a for a in arguments))

    def error(self, task: Task) -> BaseException | None:
        """What an ended task raised."""
        return task.exception()

    def result(self, task: Task) -> Any:
        """What an ended task returned."""
        return task.result()

    def check(self) -> None:
        """Nothing: threads of this process end."""

    def explain(self, error: BaseException) -> str:
        """The exception itself."""
        return explain(error)
