"""`tailtap clean`: find and remove every kernel object that tailtap left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tailtap.errors import MachineError
from tailtap.host import CommandFailed
from tailtap.host.journal import STATE, read_all
from tailtap.host.local import LocalHost

PREFIX = "tt-"
"""Every kernel object of tailtap has a name that starts so."""
DEATH_SECONDS = 5.0
"""How long killed processes may take to disappear."""

Ownership = Literal["dead", "alive", "unknown"]


@dataclass(frozen=True)
class Leftover:
    """A namespace, link or journal that exists now.

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
    """Every object of tailtap on this machine, also those in use by a running measurement."""
    host = LocalHost()
    # The journals are read last: an object that is made meanwhile is entered before it exists.
    namespaces = _namespaces(host)
    links = _links(host)
    owners: dict[tuple[str, str], tuple[Ownership, int | None]] = {}
    journals: list[Leftover] = []
    for record in read_all(state):
        ownership: Ownership = "alive" if record.owner and record.owner.alive else "dead"
        pid = record.owner.pid if record.owner else None
        journals.append(Leftover("journal", str(record.path), ownership, pid))
        for entry in record.entries:
            owners[entry.kind, entry.name] = (ownership, pid)
    objects = [("namespace", name) for name in namespaces] + [("link", name) for name in links]
    nobody: tuple[Ownership, int | None] = ("unknown", None)
    found = [Leftover(kind, name, *owners.get((kind, name), nobody)) for kind, name in objects]
    return found + journals


def remove(leftovers: Sequence[Leftover]) -> None:
    """Remove `leftovers`, processes in the namespaces included. What is gone already is fine.

    Raises `MachineError` when something resists.
    """
    host = LocalHost()
    for item in leftovers:
        match item.kind:
            case "namespace":
                remove_namespace(item.name)
            case "link":
                _delete(host, ["ip", "link", "delete", item.name], _links, item.name)
            case "journal":
                Path(item.name).unlink(missing_ok=True)


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
    return [row["name"] for row in rows if row["name"].startswith(PREFIX)]


def _links(host: LocalHost) -> list[str]:
    rows = json.loads(host.run(["ip", "-j", "link", "show"]).stdout or "[]")
    return [row["ifname"] for row in rows if row["ifname"].startswith(PREFIX)]
