"""`tailtap clean`: find and remove every kernel object that tailtap left behind."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from tailtap.errors import MachineError
from tailtap.host import CommandFailed, lxc
from tailtap.host.cards import Cards
from tailtap.host.domains import Domains
from tailtap.host.huge_pages import HugePages
from tailtap.host.journal import STATE, is_ours, read_all
from tailtap.host.local import LocalHost
from tailtap.host.pci import PciDrivers

DEATH_SECONDS = 5.0
"""How long killed processes may take to disappear."""

Ownership = Literal["dead", "alive", "unknown"]


class Kind(Protocol):
    """One kind of object that tailtap makes on a machine."""

    def existing(self, entered: Sequence[str]) -> Iterable[str]:
        """The names of all that exist now and are tailtap's.

        `entered` are those that a journal knows, which is all there is to know of objects that
        have no name of their own in the kernel.
        """
        ...

    def remove(self, name: str) -> None:
        """Remove one; nothing happens when it is gone already. Raises `MachineError`."""
        ...


class Namespaces:
    """Network namespaces, with the processes and interfaces in them."""

    def existing(self, entered: Sequence[str]) -> list[str]:
        """Those with a name that a lab gives."""
        return _namespaces(LocalHost())

    def remove(self, name: str) -> None:
        """End the processes in it and delete it."""
        remove_namespace(name)


class Containers:
    """Containers, with their control groups, mounts and folders."""

    def existing(self, entered: Sequence[str]) -> list[str]:
        """Those that have a folder of ours."""
        return lxc.existing()

    def remove(self, name: str) -> None:
        """End everything in it and remove all that it left."""
        lxc.remove(name)


class Links:
    """Interfaces in the machine's own network namespace."""

    def existing(self, entered: Sequence[str]) -> list[str]:
        """Those with a name that a lab gives."""
        return _links(LocalHost())

    def remove(self, name: str) -> None:
        """Delete it."""
        _delete(LocalHost(), ["ip", "link", "delete", name], _links, name)


class Folders:
    """Folders of programs that ran for a measurement; only a journal knows that they are ours."""

    def existing(self, entered: Sequence[str]) -> list[str]:
        """Those in a journal that are there, under a name that a lab gives."""
        return [name for name in entered if is_ours(Path(name).name) and Path(name).is_dir()]

    def remove(self, name: str) -> None:
        """Remove it with everything in it."""
        shutil.rmtree(name, ignore_errors=True)


KINDS: Mapping[str, Kind] = {
    "domain": Domains(),
    "container": Containers(),
    "card": Cards(),
    "namespace": Namespaces(),
    "link": Links(),
    "folder": Folders(),
    "huge-pages": HugePages(),
    "pci-driver": PciDrivers(),
}
"""Every kind by its name in the journal, in the order in which they are removed."""


@dataclass(frozen=True)
class Leftover:
    """An object or a journal that exists now.

    `owner` says whether the process that made it still runs.
    """

    kind: str
    name: str
    owner: Ownership
    pid: int | None = None

    def as_json(self) -> dict[str, Any]:
        """The object as a row of ``tailtap clean --json``."""
        return {"kind": self.kind, "name": self.name, "owner": self.owner, "pid": self.pid}


def find(state: Path = STATE) -> list[Leftover]:
    """Every object of tailtap on this machine, also those in use by a running measurement.

    In the order in which they can be removed.
    """
    entered = {kind: _entered(state, kind) for kind in KINDS}
    objects = [
        (kind, name) for kind, rows in KINDS.items() for name in rows.existing(entered[kind])
    ]
    # The owners are read last: an object that is made meanwhile is entered before it exists.
    owners: dict[tuple[str, str], tuple[Ownership, int | None]] = {}
    journals: list[Leftover] = []
    for record in read_all(state):
        ownership: Ownership = "alive" if record.owner and record.owner.alive else "dead"
        pid = record.owner.pid if record.owner else None
        journals.append(Leftover("journal", str(record.path), ownership, pid))
        for entry in record.entries:
            owners[entry.kind, entry.name] = (ownership, pid)
    nobody: tuple[Ownership, int | None] = ("unknown", None)
    found = [Leftover(kind, name, *owners.get((kind, name), nobody)) for kind, name in objects]
    return found + journals


def remove(leftovers: Sequence[Leftover]) -> None:
    """Remove `leftovers`, processes in the namespaces included. What is gone already is fine.

    Raises `MachineError` when something resists.
    """
    for item in leftovers:
        if item.kind == "journal":
            Path(item.name).unlink(missing_ok=True)
        else:
            KINDS[item.kind].remove(item.name)


def _entered(state: Path, kind: str) -> list[str]:
    """Names of this kind in all journals, each once, in the order in which they were entered."""
    names = (e.name for record in read_all(state) for e in record.entries if e.kind == kind)
    return list(dict.fromkeys(names))


def remove_namespace(name: str) -> None:
    """End the processes in a namespace of ours, then delete it with all its interfaces."""
    host = LocalHost()
    if name not in _namespaces(host):
        return
    deadline = time.monotonic() + DEATH_SECONDS
    while pids := host.run(["ip", "netns", "pids", name], check=False).stdout.split():
        if time.monotonic() > deadline:
            raise MachineError(f"process {pids[0]} in namespace {name} does not end")
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        time.sleep(0.01)
    _delete(host, ["ip", "netns", "delete", name], _namespaces, name)


def _delete(
    host: LocalHost, command: Sequence[str], existing: Callable[[LocalHost], list[str]], name: str
) -> None:
    """Run `command`; its failure counts only when `name` is still among the existing ones."""
    try:
        host.run(command)
    except CommandFailed:
        if name in existing(host):
            raise


def _namespaces(host: LocalHost) -> list[str]:
    listed = host.run(["ip", "-j", "netns", "list"]).stdout.strip()
    rows = json.loads(listed) if listed else []
    return [row["name"] for row in rows if is_ours(row["name"])]


def _links(host: LocalHost) -> list[str]:
    rows = json.loads(host.run(["ip", "-j", "link", "show"]).stdout or "[]")
    return [row["ifname"] for row in rows if is_ours(row["ifname"])]
