"""The network namespace of a process."""

from __future__ import annotations

from pathlib import Path

from tailtap.base.errors import InputError
from tailtap.host.changes.processes import network_of
from tailtap.measure.observe.targets.kind import Place


class Processes:
    """A process by its number."""

    form = "pid:NUMBER"
    words = "the network namespace of a process, by its number"

    def find(self, name: str) -> Place:
        """That of the process."""
        if not (name.isascii() and name.isdecimal()) or network_of(name) is None:
            raise InputError(f"pid:{name}: there is no process of this number that we may look at")
        return Place(f"/proc/{name}/ns/net", f"process {name} ({_name(name)})")


def _name(number: str) -> str:
    try:
        return Path("/proc", number, "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:  # it ended meanwhile
        return "gone"
