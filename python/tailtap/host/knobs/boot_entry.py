"""The entry of ours for systemd-boot: whether it still boots what it was made for.

It is a copy of an entry of one kernel (`host/loaders.py` writes it). A new kernel
brings an entry of its own, and the copy goes on booting the old one. Entries are those of the Boot
Loader Specification, type 1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tailtap.host.knobs.line import FINE
from tailtap.host.knobs.purpose import Purpose
from tailtap.host.knobs.tree import Absent, Tree

PLACES = ("/boot", "/efi", "/boot/efi")
"""Where the partitions with entries are mounted; systemd-boot(7)."""
ENTRY = "_-tailtap.conf"
"""Entries without a sort key are listed by their names as versions, the highest first, and the
first is booted where none is the default. Hardly a name is lower than one that begins with a dash;
``_`` does not count."""
COPIED = "# copied from "
_OURS = ("title", "sort-key", "options")
"""What differs from the entry that was copied: the last of the options are ours."""
_FILES = ("linux", "initrd", "efi", "devicetree")
Fields = Mapping[str, list[str]]


def entries(tree: Tree, folder: str) -> list[str]:
    """The names of the entries in a folder."""
    return [path.rpartition("/")[2] for path in tree.glob(f"{folder}/*.conf")]


def stale(tree: Tree, purpose: Purpose) -> Mapping[str, str]:
    """What a knob reads: all that is wrong with our entry, or that it is fine."""
    return {f"{_folder(tree)}/{ENTRY}": "; ".join(wrong(tree, purpose)) or FINE}


def _folder(tree: Tree) -> str:
    """The folder that has our entry. Raises `Absent` without one."""
    folders = [f"{place}/loader/entries" for place in PLACES]
    folder = next((one for one in folders if tree.exists(f"{one}/{ENTRY}")), None)
    if folder is None:
        raise Absent("tailtap has written no entry for systemd-boot")
    return folder


def wrong(tree: Tree, _purpose: Purpose) -> list[str]:
    """What of our entry is no more as it was when it was made, and what mends it."""
    folder = _folder(tree)
    text = tree.text(f"{folder}/{ENTRY}")
    ours = fields(text)
    base = next(
        (line.removeprefix(COPIED) for line in text.splitlines() if line.startswith(COPIED)), ""
    )
    others = {name: fields(tree.text(f"{folder}/{name}"))
              for name in entries(tree, folder) if name != ENTRY}  # fmt: skip
    newest = _newest(ours, others)
    found: list[str] = []
    place = folder.removesuffix("/loader/entries")
    gone = [file for key in _FILES for file in ours.get(key, ()) if not tree.exists(place + file)]
    found += [f"{ENTRY} boots {file}, which is not there" for file in gone]
    if base not in others:
        found.append(f"{ENTRY} is a copy of {base or 'an entry'}, which is not there")
    elif _apart(others[base]) != _apart(ours) or not _begins(ours, others[base]):
        found.append(f"{base} has changed since {ENTRY} was copied from it")
    if newest is not None:
        found.append(
            f"{ENTRY} boots {_version(ours)}, and {newest} boots the newer "
            f"{_version(others[newest])}"
        )
    mended = newest or (base if base in others else next(iter(others), None))
    if found and mended is not None:
        again = f"tailtap host bootline --install --entry {mended}"
        found.append(f"`{again}` makes it anew")
    return found


def fields(text: str) -> Fields:
    """The fields of an entry; some may be there several times."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, _, value = line.strip().replace("\t", " ").partition(" ")
        if key and not key.startswith("#"):
            found.setdefault(key, []).append(value.strip())
    return found


def _apart(entry: Fields) -> Fields:
    return {key: values for key, values in entry.items() if key not in _OURS}


def _begins(ours: Fields, base: Fields) -> bool:
    """Whether our options begin with those of the entry that was copied."""
    theirs = base.get("options", [])
    return ours.get("options", [])[: len(theirs)] == theirs


def _newest(ours: Fields, others: Mapping[str, Fields]) -> str | None:
    """The entry of the newest kernel of our flavour and system, if that is newer than ours."""
    same = [
        name
        for name, entry in others.items()
        if entry.get("machine-id") == ours.get("machine-id") and _flavour(entry) == _flavour(ours)
    ]
    name = max(same, key=lambda name: _order(_version(others[name])), default=None)
    if name is None or _order(_version(others[name])) <= _order(_version(ours)):
        return None
    return name


def _version(entry: Fields) -> str:
    return (entry.get("version") or [""])[-1]


def _order(version: str) -> list[tuple[int, str]]:
    """Versions by their numbers; a part behind ``~``, or ``-rc``, is before what it leads to."""
    parts = re.findall(r"\d+|[a-z]+|~", version.replace("-rc", "~rc"))
    ranks = {"~": (-3, "")}
    found = [(int(part), "") if part.isdigit() else ranks.get(part, (-1, part)) for part in parts]
    return [*found, (-2, "")]


def _flavour(entry: Fields) -> tuple[str, ...]:
    """What tells kernels of one version apart: the words without a number, such as ``rt``."""
    return tuple(part for part in re.split(r"[-.+_~]", _version(entry)) if part.isalpha())
