"""A file of our own that a boot loader, or what writes its menu, reads at the next boot."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from tailtap.base.errors import InputError, MachineError, did_you_mean
from tailtap.base.files import drafts_in, sync, write_text
from tailtap.host.changes.resource import Resource, Value
from tailtap.host.facts.machine import kernel_release
from tailtap.host.knobs.line import COPIED, ENTRY, PLACES, entries, listed
from tailtap.host.knobs.tree import Tree, name_of

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
        return self.path

    @property
    def claims(self) -> Sequence[str]:
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
        return {"text": self.text, "folder": True}

    def apply(self) -> None:
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


_VENDOR = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
_ATTRIBUTES = 4
"""Bytes before the value; Documentation/filesystems/efivarfs.rst."""


@dataclass(frozen=True)
class Draft:
    """A file that is about to be written, and what else there is to say of it."""

    path: str
    text: str
    others: Sequence[str]
    """The words that the line has without ours, from files that are not tailtap's."""
    base: str | None
    """The file that it is a copy of; None for one that only adds."""
    then: str
    """What the user calls for the next boot, a clause."""


class Loader(Protocol):
    """A kind of boot loader."""

    name: str

    def found(self, tree: Tree) -> bool:
        """Whether this machine has it."""

    def draft(self, tree: Tree, words: Sequence[tuple[str, str]], base: str | None) -> Draft:
        """Our file for these words, each with its reason; a copy of the entry `base`.

        Words that the line has without us are left out. Raises `MachineError` or `InputError`.
        """

    def ours(self, tree: Tree) -> list[str]:
        """The places where a file of ours may be."""

    def afterwards(self, tree: Tree) -> str:
        """What the user calls when our file was removed, a clause."""


def variable(tree: Tree, name: str) -> str:
    """A variable of the boot loader interface (systemd, BOOT_LOADER_INTERFACE); "" without it."""
    try:
        content = tree.at(f"/sys/firmware/efi/efivars/{name}-{_VENDOR}").read_bytes()
    except OSError:
        return ""
    return content[_ATTRIBUTES:].decode("utf-16-le", errors="replace").rstrip("\0")


def lacking(words: Sequence[tuple[str, str]], others: Sequence[str]) -> list[tuple[str, str]]:
    """Those of `words` that `others` do not say."""
    return [(word, why) for word, why in words if not any(alike(word, other) for other in others)]


def alike(one: str, other: str) -> bool:
    """Whether two words of a kernel's command line mean the same."""
    return name_of(one) == name_of(other) and _meaning(one) == _meaning(other)


def _meaning(word: str) -> object:
    """A list of CPUs as sets, any other value as it is written."""
    _, equals, value = word.partition("=")
    return listed(value.strip('"')) or (equals, value)


SETTINGS = "/etc/default/grub"
DROP_IN = "/etc/default/grub.d/99-tailtap.cfg"
_FOLDERS = ("/usr/sbin", "/usr/bin", "/sbin", "/bin")
_PROGRAMS = ("grub-mkconfig", "grub2-mkconfig")
_VARIABLE = "GRUB_CMDLINE_LINUX_DEFAULT"
_GIVEN = re.compile(r"\s*(?:export\s+)?(GRUB_CMDLINE_LINUX(?:_DEFAULT)?)(\+?)=(.*)")
"""What both make the line of a normal entry."""


class Grub:
    """GRUB with its drop-ins in /etc/default/grub.d."""

    name = "grub"

    def found(self, tree: Tree) -> bool:
        return tree.exists(SETTINGS)

    def draft(self, tree: Tree, words: Sequence[tuple[str, str]], base: str | None) -> Draft:
        if base is not None:
            raise InputError("GRUB has no entries to copy: leave it out").at("--entry")
        program = _mkconfig(tree)
        if program is None or "default/grub.d" not in (tree.look(program) or ""):
            raise MachineError(
                f"the GRUB of this machine reads no {DROP_IN}: add the printed line to "
                f"{_VARIABLE} in {SETTINGS}"
            )
        others = _others(tree)
        mine = lacking(words, others)
        line = assignment(" ".join(word for word, _ in mine))
        reasons = [f"# {word}: {why}" for word, why in mine]
        text = "\n".join([MARK, *reasons, line, ""])
        return Draft(DROP_IN, text, others, None, self.afterwards(tree))

    def ours(self, tree: Tree) -> list[str]:
        return [DROP_IN]

    def afterwards(self, tree: Tree) -> str:
        if any(tree.exists(f"{folder}/update-grub") for folder in _FOLDERS):
            return "call `update-grub`, then reboot"
        program = (_mkconfig(tree) or "grub-mkconfig").rpartition("/")[2]
        folder = program.removesuffix("-mkconfig")
        return f"call `{program} -o /boot/{folder}/grub.cfg`, then reboot"


def assignment(line: str) -> str:
    """The line of a shell script that adds words to normal entries."""
    return f'{_VARIABLE}="${_VARIABLE} "{shlex.quote(line)}'


def _mkconfig(tree: Tree) -> str | None:
    paths = (f"{folder}/{program}" for program in _PROGRAMS for folder in _FOLDERS)
    return next((path for path in paths if tree.exists(path)), None)


def _others(tree: Tree) -> list[str]:
    """The words that other files give to a normal entry, in the order of grub-mkconfig."""
    values: dict[str, list[str]] = {}
    files = [SETTINGS, *tree.glob(f"{DROP_IN.rpartition('/')[0]}/*.cfg")]
    for path in files:
        lines = (tree.look(path) or "").splitlines() if path != DROP_IN else []
        for match in filter(None, map(_GIVEN.fullmatch, lines)):
            name, added, value = match.groups()
            try:
                words = " ".join(shlex.split(value, comments=True)).split()
            except ValueError:  # more than an assignment in one line: nobody can tell
                continue
            plain = [word for word in words if "$" not in word]
            before = values.get(name, []) if added or plain != words else []
            values[name] = [*before, *plain]
    return [word for words in values.values() for word in words]


_LAST = "zz-tailtap"
"""The sort key of the copy; keys are listed lowest first."""


class SystemdBoot:
    """systemd-boot with its entries as files."""

    name = "systemd-boot"

    def found(self, tree: Tree) -> bool:
        installed = variable(tree, "LoaderInfo").startswith("systemd-boot") or any(
            tree.exists(f"{place}/loader/loader.conf") or tree.exists(f"{place}/EFI/systemd")
            for place in PLACES
        )
        return installed and _folder(tree) is not None

    def draft(self, tree: Tree, words: Sequence[tuple[str, str]], base: str | None) -> Draft:
        folder = _folder(tree)
        if folder is None:
            raise MachineError(
                "systemd-boot has no entry here that could be copied: put the printed line into "
                "/etc/kernel/cmdline, and make its image anew"
            )
        copied = self._base(tree, folder, base)
        path = f"{folder}/{copied}"
        lines = tree.text(path).splitlines()
        options = (line.split()[1:] for line in lines if line.split()[:1] == ["options"])
        others = [word for words_of_line in options for word in words_of_line]
        mine = lacking(words, others)
        text = "\n".join(
            [
                MARK,
                COPIED + copied,
                *(f"# {word}: {why}" for word, why in mine),
                *_renamed(lines),
                f"options {' '.join(word for word, _ in mine)}",
                "",
            ]
        )
        then = (
            f"`bootctl set-oneshot {ENTRY}` boots it once, `bootctl set-default {ENTRY}` from then "
            "on; then reboot"
        )
        return Draft(f"{folder}/{ENTRY}", text, others, path, then)

    def ours(self, tree: Tree) -> list[str]:
        return [f"{place}/loader/entries/{ENTRY}" for place in PLACES]

    def afterwards(self, tree: Tree) -> str:
        return "reboot: if it was made the default, `bootctl set-default` takes another entry"

    def _base(self, tree: Tree, folder: str, asked: str | None) -> str:
        """The entry to copy. Raises `InputError` when it cannot be told."""
        there = [name for name in entries(tree, folder) if name != ENTRY]
        if asked is not None:
            if asked not in there:
                raise InputError(f"there is no {asked!r}: {did_you_mean(asked, there)}").at(
                    "--entry"
                )
            return asked
        booted = variable(tree, "LoaderEntrySelected")
        if booted == ENTRY:
            said = (tree.look(f"{folder}/{ENTRY}") or "").splitlines()
            booted = "".join(line.removeprefix(COPIED) for line in said if line.startswith(COPIED))
        for name in there:
            # Entries that are tried count how often in their names: name+3-0.conf.
            if name == booted or re.sub(r"\+\d+(-\d+)?(?=\.conf$)", "", name) == booted:
                return name
        release = kernel_release(tree.root)
        alike = [name for name in there if _is_for(release, tree.text(f"{folder}/{name}"))]
        for found in (there, alike):
            if len(found) == 1:
                return found[0]
        choice = " or ".join(f"--entry {name}" for name in there)
        raise InputError(
            f"which entry was booted is not known: say {choice}"
            if there
            else f"{folder} has no entry that could be copied: add one, with its kernel"
        )


def _folder(tree: Tree) -> str | None:
    folders = [f"{place}/loader/entries" for place in PLACES]
    return next((folder for folder in folders if entries(tree, folder)), None)


def _is_for(release: str, text: str) -> bool:
    fields = [line.split(maxsplit=1) for line in text.splitlines()]
    return any(release in field[1] for field in fields
               if len(field) == 2 and field[0] in ("version", "linux"))  # fmt: skip


def _renamed(lines: Sequence[str]) -> list[str]:
    """The lines of an entry, with another title and as the last of the menu."""
    found = [_renamed_line(line) for line in lines]
    if not any(line.startswith("title") for line in found):
        found.insert(0, "title tailtap")
    return found


def _renamed_line(line: str) -> str:
    match line.split()[:1]:
        case ["title"]:
            return f"{line.rstrip()} (tailtap)"
        case ["sort-key"]:
            return f"sort-key {_LAST}"
    return line


LOADERS: dict[str, Loader] = {loader.name: loader for loader in (Grub(), SystemdBoot())}


def loader_of(tree: Tree, name: str | None = None) -> Loader:
    """The boot loader of a machine, or the one of that `name`.

    Raises `MachineError` when tailtap knows none of the machine's, and `InputError` when it cannot
    tell which one boots it, and for an unknown name.
    """
    if name is not None:
        if name not in LOADERS:
            raise InputError(f"there is no {name!r}: {did_you_mean(name, LOADERS)}").at("--loader")
        return LOADERS[name]
    there = [loader for loader in LOADERS.values() if loader.found(tree)]
    told = variable(tree, "LoaderInfo").lower()
    booted = [loader for loader in there if told.startswith(loader.name)]
    if len(booted or there) > 1:
        choice = " or ".join(f"--loader {loader.name}" for loader in there)
        raise InputError(f"this machine has several boot loaders: say {choice}")
    if not there:
        raise MachineError(
            "this machine has neither GRUB nor systemd-boot that tailtap knows: put the printed "
            "line on the kernel's command line by hand"
        )
    return (booted or there)[0]
