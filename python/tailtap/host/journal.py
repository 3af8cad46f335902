"""The journal of kernel objects: what tailtap made and who owns it.

Each measurement has one file of JSON lines. An object is entered, and the entry is on the disk,
before the object is made: whatever happens in between, `tailtap clean` finds it. The file goes
when everything in it is gone. An owner is known by its process id and start time, so that a
later process with the same id is not taken for it.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from tailtap.errors import MachineError

STATE = Path("/run/tailtap")
"""Network namespaces are gone after a reboot, and so is what lies under ``/run``."""
SUFFIX = ".journal"
_NAME = re.compile(r"tt-[0-9a-f]{6}-[a-z][a-z0-9-]*")


def is_ours(name: str) -> bool:
    """Whether `name` is one that a lab gives: ``tt-``, the journal's identity, and a part.

    People make objects whose names start with ``tt-`` too.
    """
    return _NAME.fullmatch(name) is not None


@dataclass(frozen=True)
class Entry:
    """One kernel object, such as the ``namespace`` of a `name` that `is_ours`."""

    kind: str
    name: str


@dataclass(frozen=True)
class Owner:
    """The process that made the objects, by id and start time in clock ticks since boot."""

    pid: int
    started: int

    @classmethod
    def this_process(cls) -> Owner:
        """The process that runs this code."""
        pid = os.getpid()
        return cls(pid, _start_time(pid) or 0)

    @property
    def alive(self) -> bool:
        """Whether that very process still runs."""
        return _start_time(self.pid) == self.started


class Journal:
    """The journal of one measurement; its identity is part of every object's name."""

    def __init__(self, identity: str, path: Path) -> None:
        """The existing journal at `path`; `create` makes one."""
        self.identity = identity
        self._path = path

    @classmethod
    def create(cls, state: Path = STATE) -> Journal:
        """Start a journal under an identity that no other journal has.

        Raises `MachineError` when the folder cannot be written.
        """
        owner = json.dumps(asdict(Owner.this_process()))
        try:
            state.mkdir(parents=True, exist_ok=True)
            while True:
                identity = secrets.token_hex(3)
                path = state / f"{identity}{SUFFIX}"
                draft = state / f"{identity}.draft"
                draft.write_text(owner + "\n", encoding="utf-8")
                # A link appears whole or not at all, and fails when the name is taken.
                try:
                    os.link(draft, path)
                except FileExistsError:
                    continue
                finally:
                    draft.unlink()
                return cls(identity, path)
        except OSError as error:
            raise MachineError(
                f"cannot write the journal in {state}: {error.strerror}: run it with sudo"
            ) from error

    def add(self, kind: str, name: str) -> None:
        """Enter an object that is about to be made; returns when the entry is on the disk."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(Entry(kind, name))) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        """Forget the journal: everything in it has been removed."""
        self._path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Record:
    """A journal as found on the disk. `owner` is None when the file is damaged."""

    path: Path
    owner: Owner | None
    entries: tuple[Entry, ...]


def read_all(state: Path = STATE) -> Iterator[Record]:
    """Every journal on this machine, also those of running measurements."""
    for path in sorted(state.glob(f"*{SUFFIX}")):
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:  # its measurement ended just now
            continue
        rows = [row for row in map(_row, lines) if row]
        owner: Owner | None = None
        entries: list[Entry] = []
        for row in rows:
            match row:
                case {"pid": int(pid), "started": int(started)}:
                    owner = Owner(pid, started)
                case {"kind": str(kind), "name": str(name)}:
                    entries.append(Entry(kind, name))
                case _:
                    continue
        yield Record(path, owner, tuple(entries))


def _row(line: str) -> dict[str, object]:
    """One line; empty when the machine stopped in the middle of writing it."""
    try:
        content = json.loads(line)
    except ValueError:
        return {}
    return cast("dict[str, object]", content) if isinstance(content, dict) else {}


def _start_time(pid: int) -> int | None:
    """Field 22 of ``/proc/PID/stat``; None when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])
