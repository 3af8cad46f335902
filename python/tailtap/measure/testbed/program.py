"""Our program as it travels to other machines: its files, and those of what it needs there.

A machine of a testbed is asked for an interpreter and nothing else. What roles need of Python
packages comes along, out of the installation that runs here.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path

import tailtap

NEEDED = ("click", "msgspec", "pydantic", "pyroute2", "PyYAML")
"""The distributions that roles import, besides what these require in turn."""
PLACE = "/var/lib/tailtap/programs"
"""Where programs are kept there, in folders called after what is in them."""
UNUSED = (".pyi", ".pyc", ".md")


@dataclass(frozen=True)
class Program:
    """Files by the path at which they are found below the program's folder."""

    files: dict[str, Path]

    @cached_property
    def identity(self) -> str:
        """A checksum of all names and contents, in hexadecimal digits."""
        total = hashlib.sha256()
        for name, path in self.files.items():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            total.update(f"{content}  {name}\n".encode())
        return total.hexdigest()

    @cached_property
    def packed(self) -> tuple[bytes, str]:
        """All of them as a compressed tar file, and its SHA-256 in hexadecimal digits."""
        packed = io.BytesIO()
        with (
            gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=6, mtime=0) as squeezed,
            tarfile.open(fileobj=squeezed, mode="w") as content,
        ):
            for name, path in self.files.items():
                entry = tarfile.TarInfo(name)
                data = path.read_bytes()
                entry.size, entry.mode = len(data), 0o755 if path.suffix == ".so" else 0o644
                content.addfile(entry, io.BytesIO(data))
        archive = packed.getvalue()
        return archive, hashlib.sha256(archive).hexdigest()


@cache
def program() -> Program:
    """The program that runs here."""
    files = dict(_own())
    for name in sorted(_required(NEEDED)):
        files |= dict(_of(name))
    return Program(dict(sorted(files.items())))


def _own() -> Iterator[tuple[str, Path]]:
    root = Path(tailtap.__file__).parent
    # A wheel has the libraries that the module is linked with beside the package.
    for folder in (root, root.with_name("tailtap.libs")):
        for path in folder.rglob("*"):
            if path.is_file() and path.suffix not in UNUSED:
                yield str(path.relative_to(root.parent)), path


def _required(names: tuple[str, ...]) -> set[str]:
    """These distributions and all that they need, extras left out."""
    found: set[str] = set()
    left = list(names)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            for line in metadata.requires(name) or ():
                requirement, _, marker = line.partition(";")
                if not marker:
                    left.append(requirement.split("=")[0].rstrip("<>!~ "))
    return found


def _of(name: str) -> Iterator[tuple[str, Path]]:
    for file in metadata.files(name) or ():
        path = Path(str(file.locate()))
        # Programs and data lie outside the folder of packages.
        if path.is_file() and path.suffix not in UNUSED and ".." not in file.parts:
            yield str(file), path
