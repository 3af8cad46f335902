"""The file system's folders and files: groups made and removed, lines written.

A refusal says what the kernel wrote to ``info/last_cmd_status``.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from tailtap.base.errors import MachineError
from tailtap.base.files import set_value
from tailtap.base.locks import holder, lock
from tailtap.host.changes.resource import read_text

FOLDER = "/sys/fs/resctrl"
WAIT_SECONDS = 10.0
"""Who divides a cache is done sooner."""


def make_group(folder: Path) -> None:
    """A new group; the kernel gives it no cores. Raises `MachineError`."""
    with _told(folder, "cannot be made"):
        folder.mkdir()


def remove_group(folder: Path) -> None:
    """Remove a group; the kernel gives its cores to the default group. Raises `MachineError`."""
    with _told(folder, "cannot be removed"):
        folder.rmdir()


def write(file: Path, text: str) -> None:
    """Write a line to a group's file. Raises `MachineError` with what the kernel says."""
    with _told(file, f"cannot be {text}"):
        set_value(file, f"{text}\n")


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock that programs which divide caches agree on; a lock of the folder.

    Raises `MachineError` where another one keeps it.
    """
    try:
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise MachineError(f"{folder} cannot be opened: {error.strerror}") from error
    try:
        if not lock(held, folder, WAIT_SECONDS):
            raise MachineError(f"{folder} stays locked by {holder(held)}: end it")
        yield
    finally:
        os.close(held)


@contextlib.contextmanager
def _told(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        top = next((one for one in path.parents if (one / "info").is_dir()), path)
        said = read_text(top / "info/last_cmd_status")
        reason = error.strerror if said in (None, "", "ok") else said
        raise MachineError(f"{path} {what}: {reason}") from error
