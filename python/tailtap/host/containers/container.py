"""What containers have in common, whatever program runs them.

A container's folder below tailtap's state is a tmpfs with its configuration and what is written in
it, for root alone. The folder is made first and goes last, so that cleaning finds a container by it
whatever happened in between.
"""

from __future__ import annotations

import abc
import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from tailtap.base import proc
from tailtap.base.errors import MachineError
from tailtap.base.files import make_folder, make_private, write_text
from tailtap.host.changes import systemd
from tailtap.host.changes.journal import STATE, is_ours
from tailtap.host.changes.resource import Resource, Value
from tailtap.host.containers import cgroups
from tailtap.remote import CommandFailed
from tailtap.remote.local import LocalHost, require_program

REMOVAL_SECONDS = 5.0
"""How long the program that ran a container may hold on to its folder."""
DEVICES = ("/dev/net/tun", "/dev/vfio", "/dev/hugepages", "/sys/fs/bpf")
"""What forwarders in user space need of the machine, where it has them."""

PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ", "TERM")
"""What of this process's environment commands in a container find there; the rest may be secret."""


def environment() -> dict[str, str]:
    """The variables that commands in a container find."""
    found = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return {"PATH": os.defpath, "HOME": "/root", **found}


@dataclass(frozen=True)
class Limit:
    """A value in a file of a container's control group."""

    version: int
    """Of the hierarchy that has the controller."""
    file: str
    value: str


@dataclass(frozen=True)
class Spec:
    """What a container is to be."""

    name: str
    lower: Path
    """The folder whose content is its root; what it writes goes elsewhere."""
    init: Sequence[str]
    limits: Sequence[Limit] = ()
    shared: Sequence[Path] = ()
    """Folders and files of this machine that it sees in the same place and cannot change."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files that it finds besides those of `lower`, by their absolute path."""


@dataclass(frozen=True)
class Inner:
    """A command of an image, which finds in the container what the image says, and nothing more."""

    words: Sequence[str]
    environment: Mapping[str, str]
    folder: str = "/"
    uid: int = 0
    gid: int = 0


@dataclass(frozen=True)
class Contained(Resource):
    """A container that runs, with its control groups, mounts and folder: a kind for each program
    that runs containers.
    """

    place: ClassVar[str]
    """What the folder of all its containers is called below tailtap's state."""
    program: ClassVar[str]
    """What runs it, as in ``$PATH``."""
    init: ClassVar[Sequence[str]]
    """The first process of a container with this machine's files: it reaps orphans."""

    name: str
    spec: Spec | None = None
    """What it is to be; None to undo it."""

    @property
    def label(self) -> str:
        return self.name

    @property
    def folder(self) -> Path:
        return STATE / self.place / self.name

    def read(self) -> bool:
        """Whether its folder is there. Raises `MachineError` when one is to be made anew."""
        there = self.folder.exists()
        if there and self.spec is not None:
            raise MachineError(
                f"the container name {self.name} is in use: `sudo tailtap clean` removes what is "
                "left of it"
            )
        return there

    def apply(self) -> None:
        assert self.spec is not None
        make_private(STATE)
        self.folder.mkdir(mode=0o700, parents=True)
        LocalHost().run(["mount", "-t", "tmpfs", "-o", "mode=0700", self.name, str(self.folder)])
        for path, text in self.spec.files.items():
            target = self.folder / "upper" / path.removeprefix("/")
            make_folder(target.parent, below=self.folder)
            write_text(target, text, below=self.folder)
        (self.folder / "upper").mkdir(exist_ok=True)
        self.start(self.spec)

    @abc.abstractmethod
    def start(self, spec: Spec) -> None:
        """Start it in its folder, where `upper` takes what it writes. Raises `MachineError`."""

    @abc.abstractmethod
    def pid(self) -> int:
        """The process id of its first process. Raises `MachineError` where it does not run."""

    @abc.abstractmethod
    def inside(self) -> list[str]:
        """What goes in front of a command that is to run in it."""

    @abc.abstractmethod
    def entered(self, inner: Inner) -> list[str]:
        """The command that runs another one in it, with no program of this machine in it.

        Raises `MachineError` for what it cannot do.
        """

    @classmethod
    def require(cls) -> None:
        require_program(cls.program)

    @classmethod
    def version(cls) -> str:
        """The program's version: the last word of the first line that it says."""
        return LocalHost().run([cls.program, "--version"]).stdout.splitlines()[0].split()[-1]

    @property
    def group(self) -> str:
        return self.name

    def groups(self) -> Sequence[str]:
        """What its control groups are called, in the order in which they end."""
        with contextlib.suppress(OSError):
            return (self.group,)
        return ()

    def undo(self, old: Value, applied: Value = None) -> None:
        if not old:
            self.remove()

    def pending(self, old: Value, applied: Value = None) -> bool:
        return self.folder.exists() or any(cgroups.groups(name) for name in self.groups())

    def remove(self) -> None:
        """The same as `undo`. Raises `MachineError` when something resists."""
        # First, as Podman's monitor would begin to clean up by itself.
        where = f"works for {self.folder} and"
        systemd.end(lambda pid: _works_for(self.folder, pid), REMOVAL_SECONDS, where)
        for name in self.groups():
            cgroups.remove(name)
        deadline = time.monotonic() + REMOVAL_SECONDS
        while self.folder.is_mount():
            try:
                LocalHost().run(["umount", "--recursive", str(self.folder)])
            except CommandFailed as error:
                if time.monotonic() > deadline:
                    raise MachineError(f"cannot unmount {self.folder}: {error.reason}") from error
                time.sleep(0.01)
        # Only a folder that was never mounted has something in it, as after a reboot.
        LocalHost().run(["rm", "-rf", "--one-file-system", str(self.folder)])

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name}

    @classmethod
    def existing(cls) -> list[Self]:
        folders = sorted((STATE / cls.place).glob("*"))
        return [cls(path.name) for path in folders if is_ours(path.name)]


def _works_for(folder: Path, pid: int) -> bool:
    """Whether the command line of a process names something in a container's folder: it enters
    the container, starts it or watches it.
    """
    words = proc.own_words(pid)
    return any(word.startswith(f"{folder}/") or f"={folder}/" in word for word in words)
