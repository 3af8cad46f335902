"""Files of marks as arrays; docs/reference/files.md describes the format."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tailtap.base.errors import NotRead, OfAnotherKind
from tailtap.base.files import drafted
from tailtap.base.foreign import map_records, open_file

RECORD = np.dtype(
    [("time_ns", "<u8"), ("key", "<u8"), ("length", "<u4"), ("flags", "u1"), ("level", "u1"),
     ("cpu", "<u2")]
)  # fmt: skip
"""The CPU is counted from 1; 0 is an unknown one."""
HEADER_BYTES = 4096
_MAGIC = b"\x89TTMARK\n"
_SEEN_AND_STORED = struct.Struct("<QQ")
_COUNTS_AT = 16
_HEADER = struct.Struct("<8sHHI6QII24s32s")
_VERSION, _MONOTONIC, _SAMPLE_BYTES = 1, 1, 16
CHUNK = 1 << 18

Marks = npt.NDArray[np.void]


def read_marks(path: Path) -> Marks:
    """The whole records of a file of marks, which stay on the disk.

    Raises `InputError` when it cannot be read or is no such file.
    """
    try:
        found = map_records(path, _MAGIC, HEADER_BYTES, RECORD)
    except (OSError, ValueError) as error:
        raise NotRead(error).at(path) from error
    if found is None:
        raise OfAnotherKind("file of marks").at(path)
    return found


def keep(path: Path, marks: Marks, chosen: npt.NDArray[np.bool_], *, below: Path) -> None:
    """Leave only some of the marks of a file, which are all of its records. The others count as
    never seen. `below` is that of `tailtap.base.files`.
    """
    gone = int(len(marks) - chosen.sum())
    if not gone:
        return
    with open_file(path) as file:
        header = bytearray(file.read(HEADER_BYTES))
    counts = _SEEN_AND_STORED.unpack_from(header, _COUNTS_AT)
    if max(counts) < 1 << 63:  # it was closed
        _SEEN_AND_STORED.pack_into(header, _COUNTS_AT, *(count - gone for count in counts))
    with drafted(path, below=below) as draft:
        draft.write(header)
        for start in range(0, len(marks), CHUNK):
            part = slice(start, start + CHUNK)
            draft.write(marks[part][chosen[part]].tobytes())


def write(path: Path, marks: Marks, *, link: str, key: str, below: Path) -> None:
    """A whole file of marks that no tap took, by the monotonic clock, in the order of time.

    `key` is what their keys are taken for, as `tailtap evaluate --key`.
    """
    head = _HEADER.pack(
        _MAGIC, _VERSION, RECORD.itemsize, _MONOTONIC, len(marks), len(marks), 0, 0, 0, 0, 0, 1,
        link.encode(), key.encode(),
    )  # fmt: skip
    with drafted(path, below=below) as draft:
        draft.write((head + bytes(_SAMPLE_BYTES)).ljust(HEADER_BYTES, b"\0"))
        draft.write(np.sort(marks, order="time_ns", kind="stable").tobytes())
