"""Files of ours: text and JSON objects that appear whole or not at all, and what is on the disk.

What is written is in memory first, and a power cut takes it away. A file is on the disk when it was
synchronised, and so is its name when its folder was; fsync(2).
"""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path
from typing import Any, cast

from tailtap.errors import InputError


def write_json(path: Path, content: object) -> None:
    """Write `content` to `path`, whole or not at all, and on the disk when this returns."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path`, whole or not at all, and on the disk when this returns."""
    draft = path.with_name(f".{path.name}.draft")
    try:
        with draft.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    sync(path.parent)


def make_folder(path: Path) -> None:
    """Make a folder and those around it where they are missing, on the disk when this returns."""
    if not path.is_dir():
        make_folder(path.absolute().parent)
        path.mkdir(exist_ok=True)
        sync(path.absolute().parent)


def sync(path: Path) -> None:
    """Return when the file or the names in the folder `path` are on the disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno != errno.EINVAL:  # this file system has nothing to synchronise
            raise
    finally:
        os.close(opened)


def sync_tree(folder: Path) -> None:
    """Return when `folder` is on the disk with all files and folders in it, and its own name."""
    for top, _, names in os.walk(folder, topdown=False):
        for name in names:
            path = Path(top, name)
            if path.is_file() and not path.is_symlink():  # a socket cannot be opened
                sync(path)
        sync(Path(top))
    sync(folder.absolute().parent)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file of ours. Raises `InputError` naming the file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot read it: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path}: this is no JSON file: {error}") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: this is no file of tailtap: it holds no JSON object")
    return cast("dict[str, Any]", content)


def slugify(text: str) -> str:
    """`text` as part of a file's name: only ``a-z0-9.-``; ``10 kpkt/s`` becomes ``10kpkt-s``."""
    joined = re.sub(r"(?<=\d)\s+(?=[a-z])", "", text.lower())
    return re.sub(r"[^a-z0-9.]+", "-", joined).strip("-.")
