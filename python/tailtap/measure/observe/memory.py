"""Folders in memory for what must not reach a disk, and the removal of those that a kill left."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tailtap.host.changes.processes import network_of
from tailtap.records.errors import MachineError
from tailtap.records.files import remove_tree

SHARED = Path("/dev/shm")
"""A file system in memory on every Linux."""
PREFIX = "tt-observe-"


@contextlib.contextmanager
def memory_folder() -> Iterator[Path]:
    """A folder in memory that nobody else can read; it goes with its content.

    Raises `MachineError` where there is no room for one.
    """
    remove_left()
    try:
        folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=SHARED))
    except OSError as error:
        raise MachineError(f"{SHARED}: cannot make a folder there: {error.strerror}") from error
    try:
        yield folder
    finally:
        remove_tree(folder, below=SHARED)


def remove_left() -> list[Path]:
    """Remove the folders of processes that were killed; which they were."""
    left = [path for path in SHARED.glob(f"{PREFIX}*-*")
            if network_of(path.name.removeprefix(PREFIX).partition("-")[0]) is None]  # fmt: skip
    for path in left:
        remove_tree(path, below=SHARED)
    return left
