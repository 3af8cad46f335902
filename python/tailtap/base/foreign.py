"""The one reader of files that strangers made: it is not led elsewhere, kept waiting, or filled up.

Only regular files below a folder that the user named are read: a link may lead to another place in
that folder. What a file holds is bounded, compressed or not, before it is in memory. Every refusal
is a `ValueError` that says what is wrong with the file, without naming it. No other module opens
files of strangers.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tailtap.base.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Records = npt.NDArray[np.void]

METADATA_BYTES = 8_000_000
"""Of a JSON file that describes an experiment; in memory it takes up to thirty times as much."""
YAML_BYTES = 100_000
"""Of a YAML file: each of its characters may take a thousand bytes in memory."""
TABLE_BYTES = 64_000_000
"""Of a file of numbers, when it is decompressed: several million lines."""
RECORD_BYTES = 256_000_000
"""Of a JSON file that tailtap itself wrote."""
HEAD_BYTES = 1 << 16
"""By which it is known whether a file is ours."""
LARGE_BYTES = 1 << 20
"""A file of more bytes has most of them on the disk."""
SMALL = 8_000_000
CELLS_PER_BYTE = 200
"""A table of more cells than `SMALL` has at most so many for each byte of its file: those of real
runs have ten, and a file that was made to fill the memory has millions."""
CELL_BYTES = 8
"""In memory; a text is as many cells as it has room for."""
MAX_DEPTH = 100
"""How deep values may lie in JSON's lists and objects."""


def open_file(path: Path, root: Path | None = None) -> IO[bytes]:
    """Open a regular file in the folder `root` or below; without one, a file that the user named.

    Links of a named file are followed. Below a folder they are resolved first, and what they led to
    is then opened without following any, folder by folder: nobody can exchange one of them in
    between. Raises `OSError` and `ValueError`.
    """
    # A pipe without a writer is opened at once, and is then no regular file.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    descriptor = os.open(path, flags) if root is None else _open_below(path, root, flags)
    file = os.fdopen(descriptor, "rb")
    try:
        _require_whole(descriptor)
    except ValueError:
        file.close()
        raise
    return file


def sha256(path: Path, root: Path) -> tuple[int, str]:
    """How many bytes a file in the folder `root` has, and their SHA-256.

    Raises `OSError` and `ValueError`.
    """
    import hashlib

    with open_file(path, root) as file:
        digest = hashlib.file_digest(file, "sha256")  # type: ignore[arg-type]
        return file.tell(), digest.hexdigest()


def within(path: Path, root: Path) -> bool:
    """Whether a path leads to something in the folder `root`, links included."""
    try:
        real, top = path.resolve(), root.resolve()
    except (RuntimeError, ValueError, OSError):  # links that lead to each other, a zero byte
        return False
    return real.is_relative_to(top) and real != top


def _open_below(path: Path, root: Path, flags: int) -> int:
    if not within(path, root):
        raise ValueError(f"it is a link to a place outside of {root}, or to itself")
    top, real = root.resolve(), path.resolve()
    *folders, name = real.relative_to(top).parts
    folder = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for inner in folders:
            deeper = os.open(inner, flags | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = deeper
        return os.open(name, flags | os.O_NOFOLLOW, dir_fd=folder)
    finally:
        os.close(folder)


def _require_whole(descriptor: int) -> None:
    """Raise `ValueError` for what is no regular file, and for one that is mostly holes."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("it is no regular file")
    if status.st_size > LARGE_BYTES and 512 * status.st_blocks < status.st_size // 2:
        # Compressed, it may need less room on the disk, and has no hole then.
        with contextlib.suppress(OSError):
            if os.lseek(descriptor, 0, os.SEEK_HOLE) < status.st_size:
                raise ValueError("more than half of it are holes, which nobody wrote")
            os.lseek(descriptor, 0, os.SEEK_SET)


def require_regular(path: Path, root: Path | None = None) -> None:
    """Raise `OSError` or `ValueError` for what `open_file` does not open."""
    open_file(path, root).close()


def read_bytes(path: Path, root: Path | None, most: int) -> bytes:
    """What is in a file, decompressed where its name ends in ``.zst``; at most so many bytes.

    Without a folder, the user named it: it may be a pipe, too. Raises `OSError` and `ValueError`.
    """
    with path.open("rb") if root is None else open_file(path, root) as file:
        if path.suffix == ".zst":
            import pyarrow as pa

            with pa.CompressedInputStream(file, "zstd") as stream:
                content: bytes = stream.read(most + 1)
        else:
            content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"it holds more than {most / 1e6:g} MB")
    return content


def read_head(path: Path) -> bytes:
    """The first bytes of a regular file that the user named; nothing of another."""
    try:
        with open_file(path) as file:
            return file.read(HEAD_BYTES)
    except ValueError:
        return b""


def require_cells(file: Path, cells: int, per_byte: int = CELLS_PER_BYTE) -> None:
    """Raise `ValueError` for tables in a file that was made to fill the memory."""
    if cells > max(SMALL, per_byte * file.stat().st_size):
        raise ValueError(f"{file}: {cells} cells are more than so small a file can hold")


def map_records(path: Path, magic: bytes, start: int, record: np.dtype[np.void]) -> Records | None:
    """The whole records from byte `start` of a file on, which stay on the disk.

    None where the file does not begin with `magic`. Raises `OSError` and `ValueError`.
    """
    import numpy as np

    with open_file(path) as file:
        if file.read(len(magic)) != magic:
            return None
        count = (os.fstat(file.fileno()).st_size - start) // record.itemsize
        if count <= 0:
            return np.empty(0, record)
        return np.memmap(file, record, "r", start, (count,))


def parse_json(text: str) -> Any:
    """The value of a JSON text that any program can hold. Raises `ValueError`."""
    try:
        value = json.loads(text, parse_int=_integer)
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    _require_plain(value)
    return value


def json_object(line: str) -> dict[str, Any]:
    """The JSON object of a line of another process; empty for what is none."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def parse_yaml(text: str) -> Any:
    """The mapping of a short YAML text, without references. Raises `ValueError`."""
    if len(text) > YAML_BYTES:
        raise ValueError(f"it holds more than {YAML_BYTES / 1e6:g} MB, too much for YAML")
    from tailtap.base.document import FileKind, parse

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
