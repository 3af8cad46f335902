"""The one reader of files that strangers made: it is not led elsewhere, kept waiting, or filled up.

Only regular files below a folder that the user named are read: a link may lead to another place in
that folder. What a file holds is bounded, compressed or not, before it is in memory. Every refusal
is a `ValueError` that says what is wrong with the file, without naming it.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from tailtap.records.errors import InputError

METADATA_BYTES = 8_000_000
"""Of a JSON file that describes an experiment; in memory it takes up to thirty times as much."""
YAML_BYTES = 100_000
"""Of a YAML file: each of its characters may take a thousand bytes in memory."""
TABLE_BYTES = 64_000_000
"""Of a file of numbers, when it is decompressed: several million lines."""
RECORD_BYTES = 256_000_000
"""Of a JSON file that tailtap itself wrote."""
MAX_DEPTH = 100
"""How deep values may lie in JSON's lists and objects."""


def open_file(path: Path, root: Path) -> IO[bytes]:
    """Open a regular file in the folder `root` or below.

    Links are resolved first and what they led to is then opened without following any, folder by
    folder: nobody can exchange one of them in between. Raises `OSError` and `ValueError`.
    """
    top = root.resolve()
    try:
        real = path.resolve()
    except RuntimeError as error:  # links that lead to each other
        raise ValueError("it is a link to itself") from error
    if not real.is_relative_to(top) or real == top:
        raise ValueError(f"it is a link to a place outside of {top}")
    *folders, name = real.relative_to(top).parts
    folder = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for inner in folders:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            deeper = os.open(inner, flags, dir_fd=folder)
            os.close(folder)
            folder = deeper
        # A pipe without a writer is opened at once, and is then no regular file.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=folder)
    finally:
        os.close(folder)
    file = os.fdopen(descriptor, "rb", closefd=True)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise ValueError("it is no regular file")
    return file


def require_regular(path: Path, root: Path) -> None:
    """Raise `OSError` or `ValueError` for what `open_file` does not open."""
    open_file(path, root).close()


def read_bytes(path: Path, root: Path, most: int) -> bytes:
    """What is in a file, decompressed where its name ends in ``.zst``; at most so many bytes.

    Raises `OSError` and `ValueError`.
    """
    with open_file(path, root) as file:
        if path.suffix == ".zst":
            import pyarrow as pa

            with pa.CompressedInputStream(file, "zstd") as stream:
                content: bytes = stream.read(most + 1)
        else:
            content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"it holds more than {most / 1e6:g} MB")
    return content


def parse_json(text: str) -> Any:
    """The value of a JSON text that any program can hold. Raises `ValueError`."""
    try:
        value = json.loads(text, parse_int=_integer)
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    _require_plain(value)
    return value


def parse_yaml(text: str) -> Any:
    """The mapping of a short YAML text, without references. Raises `ValueError`."""
    if len(text) > YAML_BYTES:
        raise ValueError(f"it holds more than {YAML_BYTES / 1e6:g} MB, too much for YAML")
    from tailtap.records.document import FileKind, parse

    try:
        value = parse(text, "YAML", FileKind("metadata", "it holds no mapping")).data
    except InputError as error:
        raise ValueError(str(error)) from error
    _require_plain(value)
    return value


def files_below(top: Path) -> list[Path]:
    """All that is no folder in `top` and below, in the order of their paths.

    Folders are not entered by links, and those that cannot be read are left out.
    """
    return sorted(_walk(top))


def _walk(top: Path) -> Iterator[Path]:
    folders = [top]
    while folders:
        try:
            entries = list(os.scandir(folders.pop()))
        except OSError:
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(Path(entry.path))
            elif not (entry.is_symlink() and Path(entry.path).is_dir()):
                yield Path(entry.path)


def storable(value: Any) -> Any:
    """A JSON value with escapes for bytes of file names that are no UTF-8, such as ``\\udcff``.

    No database or file of ours takes the halves of characters that Python has for them.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode() if _odd(value) else value
    if isinstance(value, dict):
        return {storable(key): storable(inner) for key, inner in value.items()}
    return [storable(inner) for inner in value] if isinstance(value, list | tuple) else value


_TOO_DEEP = f"more than {MAX_DEPTH} lists and objects lie in each other"


def _integer(digits: str) -> int:
    if len(digits) > 20:
        raise ValueError(f"a number has {len(digits)} digits; 20 are the most")
    return int(digits)


def _require_plain(value: Any) -> None:
    """Raise `ValueError` for values that lie too deep, and texts with half a character."""
    level = [value]
    for _ in range(MAX_DEPTH):
        inside: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inside += [*one, *one.values()]
            elif isinstance(one, list):
                inside += one
            elif isinstance(one, str) and _odd(one):
                raise ValueError("a text of it has half a character")
        if not inside:
            return
        level = inside
    raise ValueError(_TOO_DEEP)


def _odd(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text)
