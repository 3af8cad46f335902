"""Every program that runs containers here."""

from __future__ import annotations

from collections.abc import Sequence

from tailtap.base.errors import MachineError
from tailtap.host.containers.container import Engine
from tailtap.host.containers.lxc import LXC
from tailtap.host.containers.oci import CRUN, RUNC
from tailtap.host.containers.podman import PODMAN

ENGINES: Sequence[Engine] = (LXC, CRUN, RUNC, PODMAN)


def pid_of(name: str) -> int:
    """The first process of a container, whoever runs it. Raises `MachineError`."""
    for engine in ENGINES:
        if engine.folder(name).exists():
            return engine.pid_of(name)
    raise MachineError(f"there is no container {name}")
