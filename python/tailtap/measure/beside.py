"""What else of tailtap is on this machine, and where what we do ourselves delays no packet."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tailtap.host.changes.journal import Journal, read_all
from tailtap.host.changes.systemd import Folder
from tailtap.records.record import Notice


@dataclass(frozen=True)
class Beside:
    """The other processes of tailtap that have journals here, by their ids, ascending."""

    running: Sequence[int]
    """They are measuring, or about to."""
    ended: Sequence[int]
    """They were killed and left something changed."""

    @classmethod
    def look(cls, *folders: Path) -> Beside:
        """Read the journals in `folders`, those of this machine by default."""
        running: set[int] = set()
        ended: set[int] = set()
        for record in read_all(*folders):
            owner = record.owner
            if owner is None or record.foreign or record.kept or record.task is not None:
                continue
            if record.alive and owner.pid != os.getpid():
                running.add(owner.pid)
            elif record.entries and not record.alive:
                ended.add(owner.pid)
        return cls(sorted(running), sorted(ended))

    @property
    def sentences(self) -> Sequence[str]:
        """What should be known before a measurement."""
        found = []
        if self.running:
            verb = "are" if len(self.running) > 1 else "is"
            found.append(
                f"{_named(self.running)} of tailtap {verb} measuring on this machine: both delay "
                "each other's packets; wait for it, or measure again afterwards"
            )
        if self.ended:
            verb = "have" if len(self.ended) > 1 else "has"
            found.append(
                f"{_named(self.ended)} of tailtap, which {verb} ended, left namespaces, links or "
                "settings behind: `sudo tailtap clean` removes them"
            )
        return found


def other_measurements(*looks: Beside) -> list[Notice]:
    """The warning about a run, of what was seen before it and after it."""
    others = sorted({pid for look in looks for pid in look.running})
    if not others:
        return []
    message = (
        f"{_named(others)} of tailtap measured on this machine at the same time: its packets may "
        "have delayed these; measure again while nothing else is measured"
    )
    return [Notice("other-measurement", message)]


@contextlib.contextmanager
def own_folder(parent: Path, name: str) -> Iterator[Path]:
    """A folder that nobody else can read; it goes with its content.

    `tailtap clean` finds it when this process is killed. Raises `MachineError` where there is no
    room for it.
    """
    journal = Journal.create()
    try:
        path = parent / f"tt-{journal.identity}-{name}"
        with journal.held(Folder(str(path))):
            yield path
    finally:
        journal.close()


def _named(pids: Sequence[int]) -> str:
    return f"process{'es' if len(pids) > 1 else ''} {', '.join(map(str, pids))}"


NICE = 10
"""The priority of who counts, setpriority(2)."""


def settle(cpus: Collection[int]) -> None:
    """Have the calling thread, and those that it starts, work on these CPUs at low priority."""
    os.sched_setaffinity(0, cpus)
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)


@contextlib.contextmanager
def kept_to(cpus: Collection[int]) -> Iterator[None]:
    """Keep this thread, and what it starts, on these CPUs."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
