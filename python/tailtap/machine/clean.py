"""`tailtap clean`: find what tailtap left changed on this machine, and undo it.

The journals are read backwards, newest change first. Objects that no journal knows are found by
their names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tailtap.machine.journal import (
    FOLDERS,
    Entry,
    Record,
    locked,
    mark_undone,
    read_all,
    remove_drafts,
)
from tailtap.machine.kinds import KINDS, resource_of
from tailtap.machine.resource import Resource

Ownership = Literal["dead", "alive", "kept", "unknown"]


@dataclass(frozen=True)
class Leftover:
    """A change or a journal that is there now.

    `owner` says whether the process that made it still runs, or wanted it to stay: what `tailtap
    host apply` set is for `tailtap host revert` to undo.
    """

    kind: str
    name: str
    owner: Ownership
    pid: int | None = None
    journal: Path | None = None
    """The journal that knows it."""
    entry: Entry | None = None
    """Its entry there."""
    resource: Resource | None = None

    def as_json(self) -> dict[str, Any]:
        """The object as a row of ``tailtap clean --json``."""
        return {"kind": self.kind, "name": self.name, "owner": self.owner, "pid": self.pid}


def find(*folders: Path) -> list[Leftover]:
    """Every change of tailtap on this machine, also those of running measurements.

    In the order in which they can be undone. The journals are those in `folders`.
    """
    # The journals are read last: an object that is made meanwhile is entered before it exists.
    named = [one for _, kind in KINDS.working() for one in kind.existing()]
    found: list[Leftover] = []
    journals: list[Leftover] = []
    known: set[tuple[str, str]] = set()
    for record in read_all(*folders or FOLDERS):
        if record.foreign:
            continue
        owner: Ownership = "alive" if record.alive else "dead"
        if record.kept and (record.entries or not record.rebooted):
            owner = "kept"
        pid = record.owner.pid if record.owner else None
        known |= {(entry.kind, entry.name) for entry in record.entries}
        found += _changes(record, owner, pid)
        journals.append(Leftover("journal", str(record.path), owner, pid, record.path))
    strays = [one for one in named if (one.kind, one.label) not in known]
    found += [Leftover(one.kind, one.label, "unknown", resource=one) for one in strays]
    return found + journals


def _changes(record: Record, owner: Ownership, pid: int | None) -> list[Leftover]:
    """What a journal says that is still to be undone, newest first."""
    found: list[Leftover] = []
    for entry in reversed(record.entries):
        resource = resource_of(entry)
        if resource is None or resource.pending(entry.old, entry.applied):
            found.append(Leftover(entry.kind, entry.name, owner, pid, record.path, entry, resource))
    return found


def remove(leftovers: Sequence[Leftover], *folders: Path) -> list[str]:
    """Undo `leftovers`, and end the processes in namespaces and containers of ours.

    What is gone already is fine. What is left as it is, as somebody else has changed it since, is
    in the result, a sentence each. Raises `MachineError` when something resists.
    """
    left: list[str] = []
    folders = folders or FOLDERS
    with locked(folders[-1]):
        remove_drafts(*folders)
        # Another process may have cleaned meanwhile; some changes are not to be undone twice.
        open_now = {
            (record.path, entry.number) for record in read_all(*folders) for entry in record.entries
        }
        for item in leftovers:
            if item.entry is None:
                _remove_named(item)
            elif (item.journal, item.entry.number) in open_now:
                left += _undo(item, item.entry)
    return left


def _remove_named(item: Leftover) -> None:
    """Remove a journal, or an object that is known by its name."""
    if item.resource is not None:
        item.resource.undo(False)
    elif item.journal is not None:
        item.journal.unlink(missing_ok=True)


def _undo(item: Leftover, entry: Entry) -> list[str]:
    assert item.journal is not None
    if item.resource is None:
        return [f"this version of tailtap does not know the kind {item.kind}: {item.name} is left"]
    left = item.resource.undo(entry.old, entry.applied)
    mark_undone(item.journal, entry.number)
    return [] if left is None else [left]
