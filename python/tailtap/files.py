"""Files of ours: JSON objects that appear whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, cast

from tailtap.errors import InputError


def write_json(path: Path, content: object) -> None:
    """Write `content` to `path`, whole or not at all, and on the disk when this returns."""
    draft = path.with_name(f".{path.name}.draft")
    try:
        with draft.open("w", encoding="utf-8") as file:
            json.dump(content, file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


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
