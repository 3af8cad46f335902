"""Files of rules that users give to forwarders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from tailtap.records.errors import InputError
from tailtap.records.foreign import read_bytes

MOST_BYTES = 256_000_000
"""Of one file of rules."""


def _exists(value: str) -> str:
    if not Path(value).is_file():
        raise ValueError(f"there is no file {value!r}: write the path of a file with rules")
    return value


RuleFile = Annotated[str, AfterValidator(_exists)]
"""The path of a file with rules."""


def read_rules(path: str | Path) -> str:
    """What is in a file of rules; what is no UTF-8 is kept. Raises `InputError`."""
    file = Path(path).absolute()
    try:
        content = read_bytes(file, file.resolve().parent, MOST_BYTES)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot read these rules: {error}") from error
    return content.decode("utf-8", errors="surrogateescape")
