"""The records of stamp files as arrays; docs/reference/files.md describes the format."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tailtap.records.errors import NotRead, OfAnotherKind

RECORD = np.dtype([("time_ns", "<u8"), ("id", "<u4"), ("length", "<u2"), ("cpu", "<u2")])
_MAGIC = b"\x89TTSTMP\n\x01\x00\x10\x00"
"""The first bytes: magic, version, size of a record."""
_HEADER_BYTES = 64


def read_stamps(path: Path) -> npt.NDArray[np.void]:
    """The whole records of a stamp file, which stay on the disk.

    Raises `InputError` when it cannot be read or is no stamp file.
    """
    try:
        with path.open("rb") as file:
            head, size = file.read(len(_MAGIC)), os.fstat(file.fileno()).st_size
        if head != _MAGIC:
            raise OfAnotherKind("stamp file of this version of tailtap").at(path)
        count = (size - _HEADER_BYTES) // RECORD.itemsize
        if count <= 0:
            return np.empty(0, RECORD)
        return np.memmap(path, RECORD, "r", _HEADER_BYTES, (count,))
    except OSError as error:
        raise NotRead(error).at(path) from error
