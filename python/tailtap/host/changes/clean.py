"""Every kind of thing that tailtap changes on a machine."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tailtap.base.errors import MachineError
from tailtap.base.registry import Registry
from tailtap.host.changes.huge_pages import Reservation
from tailtap.host.changes.journal import (
    FOLDERS,
    Entry,
    Record,
    locked,
    mark_undone,
    read_all,
    remove_drafts,
)
from tailtap.host.changes.kernel_values import KernelValue
from tailtap.host.changes.resource import Resource
from tailtap.host.changes.systemd import Folder, SliceCpus, StoppedTimers, WakeUp
from tailtap.host.containers.domains import DomainFolder
from tailtap.host.containers.lxc import Container
from tailtap.host.containers.oci import Bundle
from tailtap.host.containers.podman import Pod
from tailtap.host.cpu.resctrl import ResctrlMount, ResourceGroup
from tailtap.host.cpu.threads import ThreadAffinity, ThreadPriority
from tailtap.host.loaders import BootFile
from tailtap.host.net.card_settings import CardQueues, CardSetting
from tailtap.host.net.cards import Card
from tailtap.host.net.namespaces import Junction, Link, Namespace, Reached, TapDevice
from tailtap.host.net.pci import VfioCard
from tailtap.host.net.port_work import CardInterrupts, PortThreads
from tailtap.host.net.silent_link import SilentLink
from tailtap.host.net.tap_filters import TapFilter
from tailtap.host.net.virtual_functions import VirtualFunction, VirtualFunctions


def _built_in() -> Mapping[str, type[Resource]]:
    return {
        kind.kind: kind
        for kind in (
            DomainFolder,
            Container,
            Bundle,
            Pod,
            CardInterrupts,
            PortThreads,
            CardQueues,
            Card,
            SilentLink,
            CardSetting,
            VirtualFunction,
            VirtualFunctions,
            KernelValue,
            Junction,
            Reached,
            TapDevice,
            TapFilter,
            Namespace,
            Link,
            Folder,
            Reservation,
            ThreadAffinity,
            ThreadPriority,
            StoppedTimers,
            SliceCpus,
            WakeUp,
            BootFile,
            VfioCard,
            ResourceGroup,
            ResctrlMount,
        )
    }


KINDS: Registry[type[Resource]] = Registry(
    "resource", "tailtap.resources", Resource, _built_in, classes=True
)
"""Every kind by its name in the journal. What no journal knows is removed in this order."""


def resource_of(entry: Entry) -> Resource | None:
    """The resource of an entry; None for one that this version of tailtap does not know."""
    try:
        kind = KINDS.get(entry.kind)
        if kind is None:
            return None
        kind.check(entry.old, entry.applied)
        return kind.parse(entry.resource)
    except (TypeError, MachineError):  # it had other fields or states, or its package does not work
        return None


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
    entry: Entry | None = None
    resource: Resource | None = None
    stays: str | None = None
    """Why it cannot be undone by this version of tailtap."""


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
        journals.append(
            Leftover("journal", str(record.path), owner, pid, record.path, stays=unresolved(record))
        )
    strays = [one for one in named if (one.kind, one.label) not in known]
    found += [Leftover(one.kind, one.label, "unknown", resource=one) for one in strays]
    return found + journals


def _changes(record: Record, owner: Ownership, pid: int | None) -> list[Leftover]:
    """What a journal says that is still to be undone, newest first."""
    found: list[Leftover] = []
    for entry in reversed(record.entries):
        resource = resource_of(entry)
        if resource is None or resource.pending(entry.old, entry.applied):
            stays = "this version of tailtap does not know it" if resource is None else None
            item = Leftover(entry.kind, entry.name, owner, pid, record.path, entry, resource, stays)
            found.append(item)
    return found


def unresolved(record: Record) -> str | None:
    """Why a journal has to stay, as this tailtap cannot undo all of it; None when it can."""
    unknown = [f"{one.kind} {one.name}" for one in record.entries if resource_of(one) is None]
    what = ", ".join([*unknown, *record.unread])
    if not what:
        return None
    call = "tailtap host revert" if record.kept else "tailtap clean"
    return (
        f"{record.path} says what this tailtap cannot undo ({what}): run `sudo {call}` with the "
        "version or the plug-in that made it, or put that back by hand and remove the file"
    )


log = logging.getLogger("tailtap")
_told: set[Path] = set()
"""The journals that this process has told of."""


def tell_unresolved(*folders: Path) -> None:
    """Log once which journals of processes that have ended have to stay."""
    for record in read_all(*folders):
        if record.alive or record.path in _told:
            continue
        sentence = unresolved(record)
        if sentence is not None:
            _told.add(record.path)
            log.warning("%s", sentence)


def remove(leftovers: Sequence[Leftover], *folders: Path) -> list[str]:
    """Undo `leftovers`, and end the processes in namespaces and containers of ours.

    What is gone already is fine. What is left as it is, as somebody else has changed it since or as
    this version does not know it, is in the result, a sentence each. Raises `MachineError` when
    something resists.
    """
    left: list[str] = []
    folders = folders or FOLDERS
    with locked(folders[-1]):
        remove_drafts(*folders)
        # Another process may have cleaned meanwhile; some changes are not to be undone twice.
        records = {record.path: record for record in read_all(*folders)}
        open_now = {
            (record.path, entry.number) for record in records.values() for entry in record.entries
        }
        for item in leftovers:
            if item.entry is not None:
                if (item.journal, item.entry.number) in open_now:
                    left += _undo(item, item.entry)
            elif item.resource is not None:  # known by its name
                item.resource.undo(False)
            elif item.journal in records:
                record = records[item.journal]
                if (sentence := unresolved(record)) is None:
                    record.path.unlink(missing_ok=True)
                else:
                    left.append(sentence)
    return left


def _undo(item: Leftover, entry: Entry) -> list[str]:
    assert item.journal is not None
    if item.resource is None:
        return []  # its journal says so
    left = item.resource.undo(entry.old, entry.applied)
    mark_undone(item.journal, entry.number)
    return [] if left is None else [left]
