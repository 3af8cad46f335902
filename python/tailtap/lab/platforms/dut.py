"""What an experiment asks a platform for, and the DuT that the platform gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

from pydantic import BaseModel

from tailtap.base.errors import MachineError
from tailtap.host.containers.container import Inner
from tailtap.host.containers.podman import account_of
from tailtap.lab.topology.graphs import DUT
from tailtap.lab.topology.placement import DEFAULT, Placement
from tailtap.records.record import Notice
from tailtap.records.run import Image
from tailtap.remote import Host
from tailtap.remote.local import SYSTEM_PATH

Options_co = TypeVar("Options_co", bound=BaseModel, covariant=True)


@dataclass(frozen=True)
class DutSpec(Generic[Options_co]):
    """What the experiment asks the platform for."""

    cpus: tuple[int, ...]
    options: Options_co
    varied: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """The values, as written, that the runs of this experiment give to options that vary."""
    both_ways: bool = False
    """Whether packets come in at both ports."""
    tuned_boot: bool = False
    """Whether the kernel is booted with the parameters that the table of knobs recommends."""
    placement: Placement = DEFAULT
    node: str = DUT
    """The node of the graph that it is for."""
    routes: bool = True
    """Whether packets are addressed to it, as to a router."""
    alone: bool = True
    """Whether no other node and no neighbour works on its CPUs."""


@dataclass(frozen=True)
class OwnFiles:
    """The files of a DuT that has none of this machine's: its commands are among them."""

    root: Path
    image: Image | None
    """What their image says; None for a folder, which says nothing."""
    enter: Callable[[Inner], list[str]]
    """The command of this machine that runs one of theirs in the DuT."""

    def words(self, command: Sequence[str] | None, arguments: Sequence[str] | None) -> list[str]:
        """A command, or that of the image, whose arguments may be others.

        Raises `MachineError` where there is none.
        """
        if command is not None:
            return list(command)
        default = self.image.arguments if self.image else ()
        found = [
            *(self.image.entrypoint if self.image else ()),
            *(default if arguments is None else arguments),
        ]
        if not found:
            raise MachineError("the image has no command: write it as dut.options.command")
        return found

    def entering(self, words: Sequence[str], more: Mapping[str, str]) -> list[str]:
        """The command of this machine that runs one of the DuT's, which finds `more` variables.

        Raises `MachineError` when it is not there.
        """
        told = (row.partition("=") for row in (self.image.environment if self.image else ()))
        variables = {"PATH": SYSTEM_PATH, **{name: value for name, _, value in told}, **more}
        self._require(words[0], variables["PATH"])
        return self.enter(self._inner(words, variables))

    def require_enterable(self) -> None:
        """Raises `MachineError` where no command can be run as the image says, `InputError` where
        that names nobody.
        """
        self.enter(self._inner(["true"], {}))

    def _inner(self, words: Sequence[str], variables: Mapping[str, str]) -> Inner:
        uid, gid = account_of(self.image.user if self.image else "", self.root)
        folder = self.image.folder if self.image else "/"
        return Inner(words, variables, folder, uid, gid)

    def _require(self, program: str, path: str) -> None:
        folders = path.split(":") if "/" not in program else [""]
        # A link leads to a place within the image, or to nowhere.
        places = [self.root / f"{folder}/{program}".lstrip("/") for folder in folders]
        if program.startswith((".", "/")) or "/" not in program:
            if program.startswith("."):
                return  # of the folder in which it is started
            if not any(place.is_symlink() or place.is_file() for place in places):
                raise MachineError(
                    f"dut.options.command: the program {program} is not in the image"
                )


Ways: TypeAlias = tuple[tuple[str, str], ...]
"""Pairs of ports: what comes in at the first is to leave by the second. Each pair is there once."""


@dataclass(frozen=True)
class Dut:
    """A host with ports, and the CPUs that it works on: one node of the graph."""

    host: Host
    ways: Ways
    """How packets pass it, in the order of the flows; there is one way at least."""
    cpus: tuple[int, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The settings as the platform read them back: `platform` in ``run.json``."""
    patience: float = 1.0
    """How many times longer than on this machine anything may take in it."""
    warnings: Sequence[Notice] = ()
    """Warnings about every measurement of it."""
    threads: Sequence[int] = ()
    """The threads of this machine that its CPUs are, where these are virtual."""
    node: str = DUT
    own: OwnFiles | None = None
    """Its files, where it has none of this machine's."""
    group: Path | None = None
    """Its control group in the hierarchy in which events are counted, where it has one."""

    @property
    def ingress(self) -> str:
        """The port at which packets of the first flow come in."""
        return self.ways[0][0]

    @property
    def egress(self) -> str:
        """The port by which they leave."""
        return self.ways[0][1]

    @property
    def both_ways(self) -> bool:
        """Whether packets also go from `egress` to `ingress`."""
        return (self.egress, self.ingress) in self.ways

    @property
    def ports(self) -> list[str]:
        """All ports that packets pass, in the order of the flows."""
        return list(dict.fromkeys(port for way in self.ways for port in way))
