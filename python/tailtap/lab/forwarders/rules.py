"""Files of rules that users give to forwarders."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import Field

from tailtap.base.errors import InputError
from tailtap.base.foreign import files_below, read_bytes

MOST_BYTES = 256_000_000
"""Of one file of rules."""


RuleFile = Annotated[str, Field(min_length=1, max_length=4096)]


def read_rules(path: str | Path) -> str:
    """What is in a file of rules; what is no UTF-8 is kept. Raises `InputError`."""
    return _read(path).decode("utf-8", errors="surrogateescape")


def read_set(paths: Sequence[str], sha256: str | None = None) -> tuple[dict[str, str], str]:
    """The files of a set of rules by their names, and the SHA-256 checksum of what was given.

    Each of `paths` is a file, a folder or an archive (tar, compressed or not). Of folders and
    archives those files are taken that end with ``.rules`` or ``.config``. The checksum is that of
    the one file, else of all that were read, one after the other. Raises `InputError`, also where
    the checksum is not `sha256`.
    """
    found: dict[str, str] = {}
    digest = hashlib.sha256()
    for path in paths:
        if Path(path).is_dir():
            parts: Iterator[tuple[str, bytes]] = _of_folder(Path(path))
        else:
            content = _read(path)
            digest.update(content)
            parts = _of_archive(path, content) if _is_archive(content) else iter([(path, content)])
        for name, content in parts:
            if Path(path).is_dir():
                digest.update(content)
            number = f"{len(found):04}-{PurePosixPath(name).name}"
            found[number] = content.decode("utf-8", errors="surrogateescape")
    if sha256 is not None and digest.hexdigest() != sha256:
        raise InputError(
            f"dut.options.sha256: {', '.join(paths)} has the checksum {digest.hexdigest()}: these "
            "are other rules"
        )
    return found, digest.hexdigest()


def _read(path: str | Path, root: Path | None = None) -> bytes:
    """What is in a file that the user named, or that is in the folder `root` or below."""
    file = Path(path).absolute()
    try:
        return read_bytes(file, root or file.resolve().parent, MOST_BYTES)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read these rules: {error}").at(path) from error


def _is_wanted(name: str) -> bool:
    return PurePosixPath(name).suffix in (".rules", ".config")


def _of_folder(folder: Path) -> Iterator[tuple[str, bytes]]:
    """The files of a folder and those in it, in the order of their names."""
    for file in sorted(files_below(folder)):
        if _is_wanted(file.name):
            yield file.name, _read(file, folder)


def _is_archive(content: bytes) -> bool:
    try:
        with tarfile.open(fileobj=io.BytesIO(content)):
            return True
    except (tarfile.TarError, OSError, EOFError):
        return False


def _of_archive(path: str, content: bytes) -> Iterator[tuple[str, bytes]]:
    """The files of an archive, in its order; nothing is unpacked onto the disk."""
    left = MOST_BYTES
    try:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            for member in archive:
                file = archive.extractfile(member) if member.isreg() else None
                if file is None or not _is_wanted(member.name):
                    continue
                left -= member.size
                if left < 0:
                    raise InputError(f"holds more than {MOST_BYTES} B of rules").at(path)
                yield member.name, file.read(member.size)
    except (tarfile.TarError, OSError, EOFError) as error:
        raise InputError(f"cannot read these rules: {error}").at(path) from error
