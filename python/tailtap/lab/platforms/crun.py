"""`crun`: the DuT is a container that crun runs, written in C; Podman runs it on Debian."""

from __future__ import annotations

from typing import ClassVar

from tailtap.host.containers.container import Engine
from tailtap.host.containers.oci import CRUN
from tailtap.lab.platforms.contained import ContainerPlatform
from tailtap.records.machine import BUILT_IN, Traits


class Crun(ContainerPlatform):
    """A bundle of the Open Container Initiative, run by crun."""

    name: ClassVar[str] = "crun"
    summary = "A container that crun runs, an OCI runtime (written in C; Podman runs it on Debian)."
    documentation = (
        "It has this machine's files, and all capabilities; the rest is as with `container`. "
        "Needs the Debian package crun."
    )
    remedy: ClassVar[str] = "apt-get install crun, on a kernel with cpuset control groups"
    engine: Engine = CRUN
    traits: Traits = BUILT_IN["crun"]
