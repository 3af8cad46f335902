"""The records of stamp files as arrays; docs/reference/files.md describes the format."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tailtap.base.errors import NotRead, OfAnotherKind
from tailtap.base.files import drafted
from tailtap.base.foreign import map_records, open_file

RECORD = np.dtype([("time_ns", "<u8"), ("id", "<u4"), ("length", "<u2"), ("cpu", "<u2")])
_STAMP_MAGIC = b"\x89TTSTMP\n\x01\x00\x10\x00"
"""The first bytes: magic, version, size of a record."""
_STAMPS_AT = 64


def read_stamps(path: Path) -> npt.NDArray[np.void]:
    """The whole records of a stamp file, which stay on the disk.

    Raises `InputError` when it cannot be read or is no stamp file.
    """
    try:
        found = map_records(path, _STAMP_MAGIC, _STAMPS_AT, RECORD)
    except (OSError, ValueError) as error:
        raise NotRead(error).at(path) from error
    if found is None:
        raise OfAnotherKind("stamp file of this version of tailtap").at(path)
    return found


MARK = np.dtype(
    [("time_ns", "<u8"), ("key", "<u8"), ("length", "<u4"), ("flags", "u1"), ("level", "u1"),
     ("cpu", "<u2")]
)  # fmt: skip
"""The CPU is counted from 1; 0 is an unknown one."""
_MARKS_AT = 4096
_MARK_MAGIC = b"\x89TTMARK\n"
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
        found = map_records(path, _MARK_MAGIC, _MARKS_AT, MARK)
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
        header = bytearray(file.read(_MARKS_AT))
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
        _MARK_MAGIC, _VERSION, MARK.itemsize, _MONOTONIC, len(marks), len(marks), 0, 0, 0, 0, 0, 1,
        link.encode(), key.encode(),
    )  # fmt: skip
    with drafted(path, below=below) as draft:
        draft.write((head + bytes(_SAMPLE_BYTES)).ljust(_MARKS_AT, b"\0"))
        draft.write(np.sort(marks, order="time_ns", kind="stable").tobytes())
