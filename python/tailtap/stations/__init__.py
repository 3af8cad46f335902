"""Where commands run: this machine, a network namespace, a container or a virtual machine on it.

The runner starts everything through a `Host`, with the same commands that a person would type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tailtap.errors import MachineError

if TYPE_CHECKING:  # the agent in a virtual machine passes by here, and has no use for it
    from tailtap.stations.process import Process


@dataclass(frozen=True)
class Completed:
    """What a finished command left behind."""

    stdout: str
    stderr: str
    status: int


class CommandFailed(MachineError):
    """A command that tailtap relies on ended with an error."""

    def __init__(self, command: Sequence[str], reason: str) -> None:
        """`command` failed for `reason`, which may have several lines."""
        self.reason = " ".join(reason.split())
        super().__init__(f"`{' '.join(' '.join(command).split())}` failed: {self.reason}")


class Host(Protocol):
    """A place where commands run and files live."""

    @property
    def own_kernel(self) -> bool:
        """Whether it runs another kernel than this machine's, whose counters then tell nothing of
        it, and whose processes here only stand for those there.
        """
        ...

    @property
    def own_files(self) -> bool:
        """Whether what is written on it stays off this machine's file system."""
        ...

    @property
    def name(self) -> str:
        """The host's name in messages."""
        ...

    @property
    def program(self) -> Sequence[str]:
        """How the `tailtap` program is called on this host."""
        ...

    def run(self, command: Sequence[str], *, stdin: str = "", check: bool = True) -> Completed:
        """Run `command` to its end. Raises `CommandFailed` on a failure unless `check` is off."""
        ...

    def start(self, command: Sequence[str]) -> Process:
        """Start `command`; it ends at the latest when tailtap does."""
        ...

    def put(self, source: Path, target: Path) -> None:
        """Copy a file of this machine to the host."""
        ...

    def get(self, source: Path, target: Path) -> None:
        """Copy a file of the host to this machine."""
        ...
