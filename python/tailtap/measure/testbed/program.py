"""Our program as it travels to hosts: its files and the packages that roles need; for a host whose
Python does not fit, with the interpreter, the standard library and the C library of this machine.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import platform
import re
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path

import tailtap
from tailtap.base.errors import MachineError
from tailtap.remote.local import require_program

NEEDED = ("click", "msgspec", "pydantic", "pyroute2", "PyYAML")
"""The distributions that roles import, besides what these require in turn."""
UNUSED = (".a", ".md", ".o", ".pyc", ".pyi")
RUNTIME = "runtime"
"""Where a bundle has its interpreter."""
STARTED = (f"{RUNTIME}/bin/python3", f"{RUNTIME}/loader/python3")
_START = Path(__file__).with_name("runtime.sh")
_LEFT_OUT = frozenset(
    ("ensurepip", "idlelib", "lib2to3", "pydoc_data", "test", "tkinter", "turtledemo",
     "dist-packages", "site-packages")
)  # fmt: skip
"""Folders of the standard library that no role needs."""
_UNUSED_MODULE = re.compile(r"_tkinter|_test|_ctypes_test|_xx|xx")
_LIBRARY = re.compile(r"^\t(?:(\S+) => )?(/\S+) \(0x", re.MULTILINE)
"""A library that ldd(1) has found. The loader is not looked for: it has its path alone."""
LIBC = " ".join(platform.libc_ver())
"""The C library of this machine, as getconf(1) prints it."""
LOADER_LIBC = (2, 33)
"""The oldest glibc whose loader can be started with another name than its own (``--argv0``)."""


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
            gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1, mtime=0) as squeezed,
            tarfile.open(fileobj=squeezed, mode="w") as content,
        ):
            for name, path in self.files.items():
                entry = tarfile.TarInfo(name)
                data = path.read_bytes()
                runs = path.suffix == ".so" or name in STARTED
                entry.size, entry.mode = len(data), 0o755 if runs else 0o644
                content.addfile(entry, io.BytesIO(data))
        archive = packed.getvalue()
        return archive, hashlib.sha256(archive).hexdigest()


@cache
def program() -> Program:
    """The program that runs here."""
    files = dict(_own())
    for name in sorted({"tailtap", *_required(NEEDED)}):
        files |= dict(_of(name))
    return Program(dict(sorted(files.items())))


@cache
def bundle() -> Program:
    """The same with what runs it here, for a host of the same architecture and any C library.

    Raises `MachineError`.
    """
    if libc_version(LIBC) < LOADER_LIBC:
        raise MachineError(
            "this machine's own Python cannot be copied there: that takes glibc "
            f"{'.'.join(map(str, LOADER_LIBC))} or newer here; name another interpreter in `python`"
        )
    files = dict(program().files)
    interpreter = Path(sys.executable).resolve()
    files |= {f"{RUNTIME}/interpreter": interpreter, STARTED[0]: _START}
    library = Path(sysconfig.get_path("stdlib"))
    for path in _kept(library):
        files[f"{RUNTIME}/{path.relative_to(sys.base_prefix)}"] = path
    linked = [str(path) for path in files.values() if path.suffix == ".so"]
    command = [require_program("ldd"), str(interpreter), *linked]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    for name, path in _LIBRARY.findall(said):
        files[f"{RUNTIME}/libraries/{Path(name).name}" if name else STARTED[1]] = Path(path)
    return Program(dict(sorted(files.items())))


def libc_version(said: str) -> tuple[int, ...]:
    """The version in what getconf(1) prints; none of a host whose C library is another one."""
    found = re.fullmatch(r"glibc (\d+)\.(\d+)", said)
    return tuple(map(int, found.groups())) if found else ()


def _kept(library: Path) -> Iterator[Path]:
    for path in library.rglob("*"):
        folders = path.relative_to(library).parts[:-1]
        if (
            path.is_file()
            and path.suffix not in UNUSED
            and not _LEFT_OUT.intersection(folders)
            and not _UNUSED_MODULE.match(path.name)
        ):
            yield path


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
