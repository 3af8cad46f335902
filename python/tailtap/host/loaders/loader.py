"""What a boot loader has to do for a kernel line, and how the one of a machine is found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tailtap.base.units import parse_cpus
from tailtap.host.knobs.tree import Tree

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


def name_of(word: str) -> str:
    """The parameter of a word, as the kernel compares it: dashes are underscores."""
    return word.partition("=")[0].replace("-", "_")


def lacking(words: Sequence[tuple[str, str]], others: Sequence[str]) -> list[tuple[str, str]]:
    """Those of `words` that `others` do not say."""
    return [(word, why) for word, why in words if not any(alike(word, other) for other in others)]


def alike(one: str, other: str) -> bool:
    """Whether two words of a kernel's command line mean the same."""
    return name_of(one) == name_of(other) and _meaning(one) == _meaning(other)


def _meaning(word: str) -> object:
    """A list of CPUs with flags before it as sets, any other value as it is written."""
    _, equals, value = word.partition("=")
    parts = value.strip('"').split(",")
    flags = frozenset(part for part in parts if not part[:1].isdigit())
    try:
        cpus = frozenset(parse_cpus(",".join(part for part in parts if part not in flags)))
    except ValueError:
        return equals, value
    return (flags, cpus) if cpus else (equals, value)
