"""Folders of ours for a while: in memory for what must not reach a disk, and aside for incidents.

They are in a journal, so that `tailtap clean` and the next observation remove those of one that was
killed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from tailtap.host.changes import clean
from tailtap.host.changes.journal import Journal
from tailtap.host.changes.processes import Folder

SHARED = Path("/dev/shm")
"""A file system in memory on every Linux."""


def name_of(identity: str, pid: int) -> str:
    """The folder of the process `pid`; ``*`` for an `identity` finds it."""
    return f"tt-{identity}-observe-{pid}"


@contextlib.contextmanager
def own_folders(*parents: Path) -> Iterator[Sequence[Path]]:
    """A folder in each of `parents` that nobody else can read; they go with their content.

    Raises `MachineError` where there is no room for one.
    """
    remove_left()
    journal = Journal.create()
    try:
        with contextlib.ExitStack() as stack:
            paths = [parent / name_of(journal.identity, os.getpid()) for parent in parents]
            for path in paths:
                stack.enter_context(journal.held(Folder(str(path))))
            yield paths
    finally:
        journal.close()


@contextlib.contextmanager
def memory_folder() -> Iterator[Path]:
    """One in memory. Raises `MachineError` where there is no room for it."""
    with own_folders(SHARED) as [path]:
        yield path


def remove_left() -> None:
    """Remove the folders of processes that were killed and have left nothing but such."""
    found = clean.find()
    dead = {one.journal for one in found if one.owner == "dead" and one.kind == Folder.kind}
    dead -= {one.journal for one in found if one.kind not in (Folder.kind, "journal")}
    clean.remove([one for one in found if one.journal in dead])
