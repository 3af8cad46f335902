"""Network namespaces by their name in ip-netns(8), or by a path."""

from __future__ import annotations

from pathlib import Path

from tailtap.base.errors import InputError
from tailtap.host.changes.processes import network_at
from tailtap.host.net.inside import NAMESPACES
from tailtap.measure.observe.targets.kind import Place

OWN = "/proc/self/ns/net"
"""The namespace that this process is in."""


class Namespaces:
    """What stands before an interface without a kind of its own."""

    form = "NETNS"
    words = "a network namespace, by its name in `ip netns list` or by a path"

    def find(self, name: str) -> Place:
        """That of a name, a path, or, of no name, this process's own."""
        if not name:
            return Place(OWN, "this machine")
        path = Path(name) if name.startswith("/") else NAMESPACES / name
        if network_at(path) is None:
            raise InputError(f"there is no network namespace {name}: `ip netns list` names them")
        return Place(str(path), f"network namespace {name}")
