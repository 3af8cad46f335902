"""`container`: the DuT is a lean container of LXC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import BaseModel

from tailtap.host.containers.container import Engine
from tailtap.host.containers.lxc import LXC
from tailtap.lab.platforms.contained import ContainedOptions, ContainerPlatform
from tailtap.lab.platforms.roots import ROOTS


class ContainerOptions(ContainedOptions):
    """The same; LXC runs an init with services as well."""

    roots: ClassVar[Sequence[str]] = tuple(ROOTS)


class Container(ContainerPlatform):
    """LXC, the containers of the papers."""

    name: ClassVar[str] = "container"
    summary = "A container of LXC, which shares this machine's kernel."
    documentation = (
        "Its ports are moved into its network namespace. Control groups limit its memory and CPUs; "
        "`platform` in run.json has what they say. Needs the Debian package lxc, and for "
        "`root: debian` mmdebstrap."
    )
    remedy: ClassVar[str] = "apt-get install lxc, on a kernel with cpuset control groups"
    engine: Engine = LXC
    Options: type[BaseModel] = ContainerOptions
