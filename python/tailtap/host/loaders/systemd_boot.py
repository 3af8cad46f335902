"""systemd-boot: a copy of the entry that was booted, with our words and a name of its own.

The old entry stays as it is, and stays the default: the copy comes last in the menu. Entries are
those of the Boot Loader Specification, type 1; the variables are those of the Boot Loader
Interface.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tailtap.base.errors import InputError, MachineError
from tailtap.base.suggest import did_you_mean
from tailtap.host.facts.machine import kernel_release
from tailtap.host.knobs.boot_entry import COPIED, ENTRY, PLACES, entries
from tailtap.host.knobs.tree import Tree
from tailtap.host.loaders.boot_file import MARK
from tailtap.host.loaders.loader import Draft, lacking, variable

_LAST = "zz-tailtap"
"""The sort key of the copy; keys are listed lowest first."""


class SystemdBoot:
    """systemd-boot with its entries as files."""

    name = "systemd-boot"

    def found(self, tree: Tree) -> bool:
        """Whether it is installed here, and has entries."""
        installed = variable(tree, "LoaderInfo").startswith("systemd-boot") or any(
            tree.exists(f"{place}/loader/loader.conf") or tree.exists(f"{place}/EFI/systemd")
            for place in PLACES
        )
        return installed and _folder(tree) is not None

    def draft(self, tree: Tree, words: Sequence[tuple[str, str]], base: str | None) -> Draft:
        """The copy of an entry: the one named, else the one that was booted."""
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
        """Our entry, wherever entries are."""
        return [f"{place}/loader/entries/{ENTRY}" for place in PLACES]

    def afterwards(self, tree: Tree) -> str:
        """The other entries are as they were."""
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
    """Whether an entry boots the kernel `release`."""
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
