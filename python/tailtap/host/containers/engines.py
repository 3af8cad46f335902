"""Every program that runs containers here."""

from __future__ import annotations

from collections.abc import Sequence

from tailtap.base.errors import MachineError
from tailtap.host.containers.container import Contained
from tailtap.host.containers.lxc import Container
from tailtap.host.containers.oci import Bundle, Runc
from tailtap.host.containers.podman import Pod

ENGINES: Sequence[type[Contained]] = (Container, Bundle, Runc, Pod)


def pid_of(name: str) -> int:
    """The first process of a container, whoever runs it. Raises `MachineError`."""
    for kind in ENGINES:
        if kind(name).folder.exists():
            return kind(name).pid()
    raise MachineError(f"there is no container {name}")
