"""Folders of programs that run for a measurement."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tailtap.base.errors import MachineError
from tailtap.host.changes.journal import is_ours
from tailtap.host.changes.resource import Resource, Value


@dataclass(frozen=True)
class Folder(Resource):
    """A folder that only its owner can read; nothing but the journal says that it is tailtap's."""

    kind: ClassVar[str] = "folder"
    survives: ClassVar[bool] = True

    path: str
    """Absolute; its last part is a name that a lab gives."""

    @property
    def label(self) -> str:
        """Its path."""
        return self.path

    def read(self) -> bool:
        """Whether it is there."""
        with contextlib.suppress(OSError):  # of names that no file can have
            return Path(self.path).is_dir()
        return False

    def plan(self) -> Value:
        """It is there."""
        return True

    def apply(self) -> None:
        """Make it. Raises `MachineError`."""
        try:
            Path(self.path).mkdir(mode=0o700)
        except OSError as error:
            raise MachineError(f"cannot make the folder {self.path}: {error.strerror}") from error

    def undo(self, old: Value, applied: Value = None) -> None:
        """Remove it with everything in it."""
        if not old and is_ours(Path(self.path).name):
            shutil.rmtree(self.path, ignore_errors=True)

    def pending(self, old: Value, applied: Value = None) -> bool:
        """Whether it is there under a name that a lab gives, and was made by tailtap."""
        return not old and is_ours(Path(self.path).name) and self.read()
