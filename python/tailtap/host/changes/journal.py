"""The journal: what tailtap changed on this machine, in which order, and who did it.

Each measurement has one file of JSON lines. The first line names the owner and the boot. A change
is entered, with the state before it and all that is needed to undo it, before it is made: whatever
happens, `tailtap clean` finds it. A second line marks it as undone. The file goes when every change
in it is undone.

- A file is in `LASTING`, so that what survives a reboot is found after one; where that folder
  cannot be written, in `STATE`. An entry that must survive a power cut is synchronised. Any other
  is in the hands of the kernel, as is what it names.
- After a reboot only the changes that survive one are left; boot_id tells.
- Two measurements do not change the same thing: each entry says what it claims, and a lock makes
  looking for other claims and entering one's own a single step.
- An owner is known by its process id and start time, so that a later process with the same id is
  not taken for it.
- Only root may read journals, and only root may hold their lock.
- A line is written whole or not at all. One that a crash or a power cut has cut short is the last
  one, and of a change that was not made. What a journal says that is not understood stays in it.
- Changes that are to stay when their process ends, such as those of `tailtap host apply`, are kept:
  a line says so once all of them are made. `tailtap clean` leaves them, and they are in nobody's
  way: a measurement that changes the same thing puts it back to what was kept.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import ConfigDict

from tailtap.base.errors import MachineError
from tailtap.base.files import make_private, read_text, sync
from tailtap.base.foreign import json_object
from tailtap.base.locks import lock
from tailtap.base.proc import stat
from tailtap.host.changes.resource import Joint, Resource, Value, told
from tailtap.host.facts.machine import boot_id

STATE = Path("/run/tailtap")
"""What the kernel forgets at a reboot, such as network namespaces, is below it."""
LASTING = Path("/var/lib/tailtap/journals")
FOLDERS = (LASTING, STATE)
"""Where journals are: new ones in the first of these that can be written."""
MACHINE_ID = Path("/etc/machine-id")
SUFFIX = ".journal"
DRAFT = ".draft"
LOCK = "lock"
_NAME = re.compile(r"tt-[0-9a-f]{6}-[a-z][a-z0-9-]*")

R = TypeVar("R", bound=Resource)
J = TypeVar("J", bound=Joint)


def is_ours(name: str) -> bool:
    """Whether `name` is one that a lab gives: ``tt-``, the journal's identity, and a part.

    People make objects whose names start with ``tt-`` too.
    """
    return _NAME.fullmatch(name) is not None


@dataclass(frozen=True)
class Entry:
    """One change, as it was planned before it was made."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    number: int
    kind: str
    name: str
    old: Value
    """The state before, as `Resource.read` gave it."""
    new: Value
    resource: Mapping[str, Any]
    claims: Sequence[str] = ()
    survives: bool = False
    applied: Value = None
    """What the kernel said when it was done, of resources that need to know."""


@dataclass(frozen=True)
class Owner:
    """The process that made the changes, by id and start time in clock ticks since boot."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Owner:
        return cls(pid, _start_time(pid) or 0)

    @property
    def alive(self) -> bool:
        """Whether that very process still runs."""
        return _start_time(self.pid) == self.started


class Journal:
    """The journal of one measurement; its identity is part of every object's name."""

    def __init__(self, identity: str, path: Path, folders: Sequence[Path]) -> None:
        """The new journal at `path`, one of those in `folders`; `create` makes one."""
        self.identity = identity
        self.left: list[str] = []
        """A sentence for each thing that was not put back, as somebody else had changed it."""
        self._path = path
        self._folders = folders
        self._entered = 0
        self._open: set[int] = set()
        self._applied: dict[int, Value] = {}

    @classmethod
    def create(cls, *folders: Path, task: str | None = None) -> Journal:
        """Start a journal in the first of `folders` that can be written, `FOLDERS` by default.

        Its identity is that of no other journal. Of a `task`, a command such as ``tailtap host
        apply``, only one may be under way. Raises `MachineError` when it is, and when no folder
        can be written.
        """
        from tailtap.host.changes.clean import tell_unresolved

        folders = folders or FOLDERS
        for place, folder in enumerate(folders):
            try:
                with locked(folders[-1]):
                    tell_unresolved(*folders)
                    if task is not None:
                        _refuse_another(task, folders)
                    return cls._create(folder, folders, task)
            except OSError as error:
                if place == len(folders) - 1:
                    raise MachineError(
                        f"cannot write the journal in {folder}: {error.strerror}: {_remedy(error)}"
                    ) from error
        raise AssertionError("there is a last folder")

    @classmethod
    def _create(cls, folder: Path, folders: Sequence[Path], task: str | None) -> Journal:
        header = {
            "owner": asdict(Owner.of(os.getpid())),
            "boot_id": boot_id(),
            "machine_id": machine_id(),
            "task": task,
            "order": 1 + max((record.order for record in read_all(*folders)), default=0),
        }
        make_private(folder)
        while True:
            identity = secrets.token_hex(3)
            if any((other / f"{identity}{SUFFIX}").exists() for other in folders):
                continue
            path = folder / f"{identity}{SUFFIX}"
            draft = folder / f"{identity}{DRAFT}"
            append(draft, header)
            # A link appears whole or not at all, and fails when the name is taken.
            try:
                os.link(draft, path)
            except FileExistsError:
                continue
            finally:
                draft.unlink()
            return cls(identity, path, folders)

    @contextlib.contextmanager
    def held(self, resource: R) -> Iterator[R]:
        """The change that `resource` is, entered and applied; undone at the end.

        Raises `MachineError` when somebody else uses it, and what `resource` raises.
        """
        with self.made(self.enter(resource), resource):
            yield resource

    @contextlib.contextmanager
    def made(self, entry: Entry, resource: Resource) -> Iterator[None]:
        """The change of an entry, applied; undone at the end. Raises what `resource` raises."""
        try:
            self.apply(entry, resource)
            yield
        finally:
            self.undo(entry, resource)

    @contextlib.contextmanager
    def made_together(self, many: Sequence[J]) -> Iterator[None]:
        """Changes of one kind that claim nothing, entered and applied at once; undone at the end.

        Raises as `held` does.
        """
        kind = type(many[0])
        entries: list[tuple[J, Entry]] = []
        try:
            for one, old in zip(many, kind.read_all(many), strict=True):
                entries.append((one, self._entered_as(one, old)))
            kind.apply_all(many)
            yield
        finally:
            entries.reverse()
            left = kind.undo_all([(one, entry.old) for one, entry in entries])
            for (_, entry), sentence in zip(entries, left, strict=True):
                self._undone(entry, sentence)

    def apply(self, entry: Entry, resource: Resource) -> None:
        """Make the change of an entry. Raises what `resource` raises; undo the entry then."""
        applied = resource.apply()
        if applied is not None:
            self._applied[entry.number] = applied
            self._write({"applied": entry.number, "state": applied})

    def applied(self, entry: Entry) -> Value:
        """What making the change of an entry found out; None where it found out nothing."""
        return self._applied.get(entry.number)

    def enter(self, resource: Resource) -> Entry:
        """Enter a change that is about to be made, with the state before it.

        Raises `MachineError` when another measurement uses the same, or has left it changed.
        """
        with locked(self._folders[-1]) if resource.claims else contextlib.nullcontext():
            self._refuse(resource)
            return self._entered_as(resource, resource.read())

    def _entered_as(self, resource: Resource, old: Value) -> Entry:
        entry = Entry(
            self._entered + 1,
            resource.kind,
            resource.label,
            old,
            resource.plan(),
            resource.as_json(),
            resource.claims,
            resource.survives,
        )
        self._write({"entry": asdict(entry)}, lasting=resource.survives)
        self._entered = entry.number
        self._open.add(entry.number)
        return entry

    def undo(self, entry: Entry, resource: Resource) -> None:
        """Undo a change and mark it so. Nothing happens when it is undone already."""
        if entry.number in self._open:
            self._undone(entry, resource.undo(entry.old, self._applied.get(entry.number)))

    def _undone(self, entry: Entry, left: str | None) -> None:
        if left is not None:
            self.left.append(left)
        self._open.remove(entry.number)
        # Without the mark it would be found to be undone, and the file goes anyway.
        with contextlib.suppress(MachineError):
            self._write({"undone": entry.number})

    def keep(self) -> None:
        """Let what is entered stay when this process ends, until somebody undoes it."""
        self._write({"kept": True}, lasting=True)

    def close(self) -> None:
        """Forget the journal, unless something in it could not be undone."""
        if not self._open:
            self._path.unlink(missing_ok=True)

    def _write(self, row: object, *, lasting: bool = False) -> None:
        try:
            append(self._path, row)
            if lasting:
                sync(self._path)
                sync(self._path.parent)
        except OSError as error:
            raise MachineError(
                f"cannot write the journal {self._path}: {error.strerror}: make room there"
            ) from error

    def _refuse(self, resource: Resource) -> None:
        """Raises `MachineError` when an open entry of another journal claims the same."""
        claims = set(resource.claims)
        if not claims:
            return
        for record in read_all(*self._folders):
            if record.path == self._path or record.kept:
                continue
            for entry in record.entries:
                if claims.isdisjoint(entry.claims):
                    continue
                pid = record.owner.pid if record.owner else 0
                if record.alive:
                    raise MachineError(
                        f"{resource.kind} {resource.label} is in use by another tailtap, process "
                        f"{pid}: wait until it has ended"
                    )
                raise MachineError(
                    f"{resource.kind} {resource.label} was left changed by process {pid}, which "
                    "has ended: `sudo tailtap clean` puts it back"
                )


@dataclass(frozen=True)
class Record:
    """A journal as found on the disk. `owner` is None when the file is damaged."""

    path: Path
    owner: Owner | None
    entries: tuple[Entry, ...]
    """The changes that may still have to be undone, in the order in which they were made.

    After a reboot these are only those that survive one.
    """
    rebooted: bool = False
    kept: bool = False
    """Whether its changes are to stay when their process has ended."""
    task: str | None = None
    """The command that made it, where only one may be under way."""
    order: int = 0
    """Later journals have higher ones; 0 of those that do not say."""
    foreign: bool = False
    """Whether it is another machine's. It has no entries then, as nothing here is to be undone."""
    ended: tuple[Entry, ...] = ()
    """The changes that a reboot has undone, in the order in which they were made."""
    unread: tuple[str, ...] = ()
    """What it says that is not understood: damaged lines, and entries with fields of others."""

    @property
    def alive(self) -> bool:
        return self.owner is not None and not self.rebooted and self.owner.alive


def read_all(*folders: Path) -> Iterator[Record]:
    """Every journal in `folders`, `FOLDERS` by default, also those of running measurements."""
    now, here = boot_id(), machine_id()
    for path in sorted(path for one in folders or FOLDERS for path in one.glob(f"*{SUFFIX}")):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:  # its measurement ended just now
            continue
        owner: Owner | None = None
        rebooted = kept = foreign = False
        task: str | None = None
        order = 0
        entries: dict[int, Entry] = {}
        strange: dict[int, str] = {}
        damaged: list[str] = []
        # What is behind the last end of a line was being written: its change was not made.
        for place, line in enumerate(text.split("\n")[:-1], start=1):
            match row := json_object(line):
                case {"owner": {"pid": int(pid), "started": int(started)}, "boot_id": boot}:
                    owner, rebooted = Owner(pid, started), boot != now
                    theirs = row.get("machine_id")
                    foreign = None not in (theirs, here) and theirs != here
                    match row.get("order", 0), row.get("task"):
                        case (int(order), str() | None as task):
                            continue
                        case _:
                            damaged.append(f"line {place}")
                case {"entry": {"number": int(number), **fields} as entry}:
                    try:
                        entries[number] = told(Entry, entry)
                    except TypeError:  # of another version of tailtap, or damaged
                        strange[number] = f"{fields.get('kind')} {fields.get('name')}"
                case {"applied": int(number), "state": state} if number in entries:
                    entries[number] = replace(entries[number], applied=state)
                case {"undone": int(number)}:
                    entries.pop(number, None)
                    strange.pop(number, None)
                case {"kept": bool(kept)}:
                    continue
                case {"applied": int()}:  # of what is undone, or not understood
                    continue
                case _:
                    damaged.append(f"line {place}")
        there = () if foreign else tuple(entries.values())
        ended = tuple(entry for entry in there if rebooted and not entry.survives)
        left = tuple(entry for entry in there if entry not in ended)
        unread = () if foreign else (*strange.values(), *damaged)
        yield Record(path, owner, left, rebooted, kept, task, order, foreign, ended, unread)


def remove_drafts(*folders: Path) -> None:
    """Remove journals that were not finished, by processes that have ended: call it `locked`."""
    for draft in [path for one in folders for path in one.glob(f"*{DRAFT}")]:
        draft.unlink(missing_ok=True)


def mark_undone(path: Path, number: int) -> None:
    """Mark an entry of another process's journal; nothing happens when the journal is gone."""
    if path.exists():
        append(path, {"undone": number})


def append(path: Path, row: object) -> None:
    """Write one line to the end of a journal, whole or not at all. Raises `OSError`."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "r+b", buffering=0) as file:
        whole = file.seek(0, os.SEEK_END)
        if whole:
            file.seek(whole - 1)
            if file.read(1) != b"\n":  # a crash has cut the last line short
                file.seek(0)
                whole = file.readall().rfind(b"\n") + 1
                file.truncate(whole)
        rest = json.dumps(row).encode() + b"\n"
        try:
            while rest:
                rest = rest[file.write(rest) :]
        except OSError:
            file.truncate(whole)
            raise


@contextlib.contextmanager
def locked(folder: Path = STATE) -> Iterator[None]:
    """Hold the lock of all journals; it waits for whoever has it, and ends with this process."""
    path = folder / LOCK
    try:
        make_private(folder)
        opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise MachineError(
            f"cannot write the journal in {folder}: {error.strerror}: {_remedy(error)}"
        ) from error
    try:
        os.fchmod(opened, 0o600)
        lock(opened, path)
        yield
    finally:
        os.close(opened)


def _remedy(error: OSError) -> str:
    if os.geteuid() != 0:
        return "run it with sudo"
    return "move it away" if isinstance(error, PermissionError) else "make room there"


def machine_id() -> str | None:
    """What tells this installed machine from all others, machine-id(5); None where it has none."""
    return read_text(MACHINE_ID) or None


def _refuse_another(task: str, folders: Sequence[Path]) -> None:
    """Raises `MachineError` when another process is at the same task."""
    for record in read_all(*folders):
        if record.task == task and record.alive and not record.kept:
            assert record.owner is not None
            raise MachineError(
                f"another {task} runs, process {record.owner.pid}: wait until it has ended"
            )


def _start_time(pid: int) -> int | None:
    """When a process began, in clock ticks since boot; None when there is no such process."""
    found = stat(pid)
    return None if found is None or found.state in "ZX" else found.started
