"""The file system itself, mounted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tailtap.base.errors import MachineError
from tailtap.host.changes.resource import Resource, Value
from tailtap.host.cpu.resctrl.files import FOLDER
from tailtap.remote import CommandFailed
from tailtap.remote.local import LocalHost


@dataclass(frozen=True)
class ResctrlMount(Resource):
    """The file system, mounted; taken away again unless somebody else has made groups in it."""

    kind: ClassVar[str] = "resctrl"

    folder: str = FOLDER

    @property
    def label(self) -> str:
        """Its place."""
        return self.folder

    @property
    def claims(self) -> Sequence[str]:
        """There is one of it."""
        return ["resctrl mount"]

    def read(self) -> bool:
        """Whether it is mounted."""
        return Path(self.folder, "schemata").exists()

    def plan(self) -> bool:
        """It is."""
        return True

    def apply(self) -> None:
        """Mount it. Raises `MachineError`."""
        self._run("mount", "-t", "resctrl", "resctrl", self.folder)
        if not self.read():
            raise MachineError(f"{self.folder} was mounted, and has no schemata")

    def undo(self, old: Value, applied: Value = None) -> str | None:
        """Unmount it, by which the kernel removes all groups."""
        if old or not self.read():
            return None
        others = sorted(path.parent.name for path in Path(self.folder).glob("*/schemata"))
        if others:
            return f"somebody else has made {', '.join(others)} in {self.folder}: it stays mounted"
        self._run("umount", self.folder)
        return None

    def _run(self, *command: str) -> None:
        try:
            LocalHost().run(command)
        except CommandFailed as error:
            raise MachineError(f"`{' '.join(command)}` failed: {error.reason}") from error
