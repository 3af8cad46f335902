"""Machines as text: files of /proc and /sys, a line each, that tests unpack into a folder.

A line is ``path: content``; lines that begin with ``| `` go on with the content. ``{0-3}`` in a
path stands for each of these numbers, ``{online}`` for each CPU that is online; ``{n}``, ``{n+32}``
and ``{n-32}`` in the content follow it. Comments say where the facts are from.
"""

from __future__ import annotations

import re
from pathlib import Path

from tailtap.base.units import parse_cpus

FOLDER = Path(__file__).parents[1] / "unit/host/machines"
NAMES = ("intel-two-sockets", "amd-epyc-four-nodes", "raspberry-pi-4", "cloud-vm")
_RANGE = re.compile(r"\{([\d,-]+)\}")
_NUMBER = re.compile(r"\{n([+-]\d+)?\}")


def unpacked(name: str, folder: Path) -> Path:
    """The files of the machine `name`, written to `folder`; what it does not say is a default."""
    own = _rows((FOLDER / f"{name}.txt").read_text())
    online = own["/sys/devices/system/cpu/online"]
    files: dict[str, str] = {}
    for rows in (_rows((FOLDER / "defaults.txt").read_text()), own):
        for pattern, content in rows.items():
            files.update(_each(pattern.replace("{online}", f"{{{online}}}"), content))
    for path, content in files.items():
        file = folder / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{content}\n")
    return folder


def _rows(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    path = ""
    for line in text.splitlines():
        if line.startswith("| "):
            found[path] += f"\n{line[2:]}"
        elif line and not line.startswith("#"):
            path, _, content = line.partition(":")
            assert path not in found, f"{path} is there twice"
            found[path] = content.strip()
    return found


def _each(pattern: str, content: str) -> dict[str, str]:
    match = _RANGE.search(pattern)
    if match is None:
        return {pattern: content}
    return {
        pattern.replace(match[0], str(number)): _numbered(content, number)
        for number in parse_cpus(match[1])
    }


def _numbered(content: str, number: int) -> str:
    return _NUMBER.sub(lambda match: str(number + int(match[1] or 0)), content)
