"""`runc`: the DuT is a container that runc runs, the runtime of Docker."""

from __future__ import annotations

from typing import ClassVar

from tailtap.host.containers.container import Engine
from tailtap.host.containers.oci import RUNC
from tailtap.lab.platforms.contained import ContainerPlatform
from tailtap.records.machine import BUILT_IN, Traits


class Runc(ContainerPlatform):
    """A bundle of the Open Container Initiative, run by runc."""

    name: ClassVar[str] = "runc"
    summary = "A container that runc runs, an OCI runtime (the runtime of Docker)."
    documentation = (
        "It has this machine's files, and all capabilities; the rest is as with `container`. "
        "Needs the Debian package runc."
    )
    remedy: ClassVar[str] = "apt-get install runc, on a kernel with cpuset control groups"
    engine: Engine = RUNC
    traits: Traits = BUILT_IN["runc"]
