"""Where commands run: this machine, a network namespace, a container or a virtual machine on it.

The runner starts everything through a `Host`, with the same commands that a person would type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tailtap.base.errors import MachineError

if TYPE_CHECKING:  # the agent in a virtual machine passes by here, and has no use for it
    from tailtap.remote.local import Process


@dataclass(frozen=True)
class Completed:
    """What a finished command left behind."""

    stdout: str
    stderr: str
    status: int


class ProgramMissing(MachineError):
    """A program that is called is not there."""

    program: str

    def __init__(self, program: str, remedy: str, *, host: str = "") -> None:
        """`host` is where it is missing, unless that is this machine."""
        where = f" on {host}" if host else ""
        super().__init__(f"the program {program} is missing{where}", remedy=remedy)
        self.program = program


class CommandFailed(MachineError):
    """A command that tailtap relies on ended with an error."""

    reason: str

    def __init__(self, command: Sequence[str], reason: str) -> None:
        """`command` failed for `reason`, which may have several lines."""
        self.reason = " ".join(reason.split())
        super().__init__(f"`{' '.join(' '.join(command).split())}` failed: {self.reason}")


class NoAnswer(CommandFailed):
    """A command did not end in time."""

    seconds: float

    def __init__(self, command: Sequence[str], seconds: float) -> None:
        super().__init__(command, f"no answer within {seconds:g} s")
        self.seconds = seconds


class Host(Protocol):
    """A place where commands run and files live."""

    @property
    def own_kernel(self) -> bool:
        """Whether it runs another kernel than this machine's, whose counters then tell nothing of
        it, and whose processes here only stand for those there.
        """

    @property
    def own_files(self) -> bool:
        """Whether what is written on it stays off this machine's file system."""

    @property
    def name(self) -> str:
        """The host's name in messages."""

    @property
    def program(self) -> Sequence[str]:
        """How the `tailtap` program is called on this host."""

    def run(self, command: Sequence[str], *, stdin: str = "", check: bool = True) -> Completed:
        """Run `command` to its end. Raises `CommandFailed` on a failure unless `check` is off."""

    def start(self, command: Sequence[str]) -> Process:
        """Start `command`; it ends at the latest when tailtap does."""

    def put(self, source: Path, target: Path) -> None:
        """Copy a file of this machine to the host."""

    def get(self, source: Path, target: Path) -> None:
        """Copy a file of the host to this machine."""
