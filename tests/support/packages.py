"""Packages that are installed for one test: files on Python's path, without pip."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import other_kinds

KINDS = {
    "tailtap.platforms": "pod = other_kinds:Pod",
    "tailtap.forwarders": "relay = other_kinds:Relay",
    "tailtap.generators": "trickle = other_kinds:Trickle",
    "tailtap.taps": "listener = other_kinds:Listener",
    "tailtap.exporters": "lines = other_kinds:Lines",
    "tailtap.resources": "flag = other_kinds:Flag",
}
"""The entry points of `other_kinds`, by their group."""


def install(folder: Path, name: str, entry_points: Mapping[str, str]) -> None:
    """Install a package without content in a folder that is on Python's path."""
    metadata = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    text = "".join(f"[{group}]\n{line}\n" for group, line in entry_points.items())
    (metadata / "entry_points.txt").write_text(text)


def install_kinds(folder: Path) -> None:
    """Install the package `other-kinds` with one kind of everything."""
    install(folder, "other-kinds", KINDS)
    module = Path(other_kinds.__file__)
    (folder / module.name).write_text(module.read_text(encoding="utf-8"), encoding="utf-8")
