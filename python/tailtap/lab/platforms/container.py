"""`container`: the DuT is a lean container of LXC."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, Field

from tailtap.host.containers.container import Engine
from tailtap.host.containers.lxc import LXC
from tailtap.lab.platforms.contained import ContainedOptions, ContainerPlatform
from tailtap.lab.platforms.roots import ROOTS, Root


class ContainerOptions(ContainedOptions):
    """What limits a container, and which files it has."""

    root: Literal["host", "debian"] | None = Field(
        default=None,
        description="The container's root file system: host is this machine's own, debian is one "
        "of Debian with systemd, which the first run makes. Neither is written to. host is the "
        "default.",
        examples=["debian"],
    )


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

    def root(self, options: ContainedOptions) -> tuple[str, Root]:
        """That of `dut.root`."""
        kind = (isinstance(options, ContainerOptions) and options.root) or "host"
        return kind, ROOTS[kind]
