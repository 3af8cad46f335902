"""The records of stamp files as arrays; docs/reference/files.md describes the format."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from tailtap.base.errors import NotRead, OfAnotherKind
from tailtap.base.foreign import map_records

RECORD = np.dtype([("time_ns", "<u8"), ("id", "<u4"), ("length", "<u2"), ("cpu", "<u2")])
_MAGIC = b"\x89TTSTMP\n\x01\x00\x10\x00"
"""The first bytes: magic, version, size of a record."""
_HEADER_BYTES = 64


def read_stamps(path: Path) -> npt.NDArray[np.void]:
    """The whole records of a stamp file, which stay on the disk.

    Raises `InputError` when it cannot be read or is no stamp file.
    """
    try:
        found = map_records(path, _MAGIC, _HEADER_BYTES, RECORD)
    except (OSError, ValueError) as error:
        raise NotRead(error).at(path) from error
    if found is None:
        raise OfAnotherKind("stamp file of this version of tailtap").at(path)
    return found
