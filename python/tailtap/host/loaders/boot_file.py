"""A file of our own that a boot loader, or what writes its menu, reads at the next boot."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tailtap.base.errors import MachineError
from tailtap.base.files import drafts_in, sync, write_text
from tailtap.host.changes.resource import Resource, Value

MARK = "# tailtap wrote this file: `tailtap host bootline --remove` takes it away."
"""The first line of each: a file of that name without it is somebody else's."""


@dataclass(frozen=True)
class BootFile(Resource):
    """A file that a boot loader reads, whole or not there; somebody else's of that name is left."""

    kind: ClassVar[str] = "boot-file"
    survives: ClassVar[bool] = True

    path: str
    """Absolute, as the machine sees it."""
    text: str
    """All of it; the first line is `MARK`."""
    root: str = "/"
    """What stands in for ``/`` in tests."""

    @property
    def label(self) -> str:
        """Its path."""
        return self.path

    @property
    def claims(self) -> Sequence[str]:
        """The file."""
        return [f"file {self.path}"]

    def read(self) -> dict[str, Any]:
        """Its text, None without it, and whether its folder is there.

        Raises `MachineError` when a file of somebody else's has its name.
        """
        state = self._state()
        text = state["text"]
        if self._file.is_symlink() or (text is not None and not text.startswith(MARK)):
            raise MachineError(
                f"{self.path} is there, and tailtap did not write it: rename or remove it"
            )
        return state

    def plan(self) -> Value:
        """The text, in its folder."""
        return {"text": self.text, "folder": True}

    def apply(self) -> None:
        """Write it. Raises `MachineError`."""
        try:
            self._file.parent.mkdir(exist_ok=True)
            write_text(self._file, self.text)
        except OSError as error:
            raise MachineError(
                f"cannot write {self.path}: {error.strerror}: make it writable, or put the printed "
                "line on the kernel's command line by hand"
            ) from error
        if self._state()["text"] != self.text:
            raise MachineError(f"{self.path} is not what was written to it")

    def undo(self, old: Value, applied: Value = None) -> str | None:
        """Put back the text before, or remove the file, and its folder if tailtap made it."""
        now = self._state()["text"]
        if now not in (self.text, old["text"]):
            return f"somebody else changed {self.path}: it is left as it is"
        try:
            for draft in drafts_in(self._file.parent):
                draft.unlink()
            if now == old["text"]:
                pass
            elif old["text"] is None:
                self._file.unlink()
                sync(self._file.parent)
            else:
                write_text(self._file, old["text"])
        except OSError as error:
            raise MachineError(f"cannot change {self.path}: {error.strerror}") from error
        if not old["folder"]:
            with contextlib.suppress(OSError):  # somebody else has put a file there
                self._file.parent.rmdir()
        return None

    def pending(self, old: Value, applied: Value = None) -> bool:
        """Whether the file, or a draft or an empty folder of ours is there."""
        folder = self._file.parent
        empty = not old["folder"] and folder.is_dir() and not any(folder.iterdir())
        return empty or bool(drafts_in(folder)) or self._state()["text"] != old["text"]

    @property
    def _file(self) -> Path:
        return Path(self.root, self.path.lstrip("/"))

    def _state(self) -> dict[str, Any]:
        try:
            text = self._file.read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, NotADirectoryError):
            text = None
        except OSError as error:
            raise MachineError(f"cannot read {self.path}: {error.strerror}") from error
        return {"text": text, "folder": self._file.parent.is_dir()}
