"""Looking packets up in stamp files; docs/files.md describes the format."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tailtap.errors import InputError
from tailtap.evaluation.values import Column

_MAGIC = b"\x89TTSTMP\n\x01\x00\x10\x00"
"""The first bytes: magic, version, size of a record."""
_HEADER_BYTES = 64
_RECORD = np.dtype([("time_ns", "<u8"), ("id", "<u4"), ("length", "<u2"), ("flags", "<u2")])
_CHUNK = 1 << 20
"""Records that are looked at at once: 16 MiB, however long the file is."""
_LOW_BITS = 0xFFFF


def first_between(
    path: Path, ids: Column, after_ns: Column, until_ns: Column, missing: int
) -> Column:
    """When packets passed a tap: of each the first stamp with its id from `after_ns` to `until_ns`.

    Rows are packets, and `missing` stands for those without such a stamp. Raises `InputError` when
    `path` is no stamp file.
    """
    found_ids, times = _with_ids(path, ids)
    order = np.lexsort((times, found_ids))
    # One more that fits nobody, so that the place behind the last one can be looked at.
    found_ids, times = np.append(found_ids[order], -1), np.append(times[order], -1)
    at = np.searchsorted(found_ids[:-1], ids, "left")
    end = np.searchsorted(found_ids[:-1], ids, "right")
    while (early := (at < end) & (times[at] < after_ns)).any():
        at[early] += 1
    return np.where((at < end) & (times[at] <= until_ns), times[at], missing)


def _with_ids(path: Path, ids: Column) -> tuple[Column, Column]:
    """Ids and times of all records with one of these ids."""
    wanted = np.unique(ids)
    # Most records end here, which costs little.
    candidates = np.zeros(_LOW_BITS + 1, bool)
    candidates[wanted & _LOW_BITS] = True
    kept: list[npt.NDArray[np.void]] = []
    records = _records(path)
    for start in range(0, len(records), _CHUNK):
        chunk = records[start : start + _CHUNK]
        near = chunk[candidates[chunk["id"] & _LOW_BITS]]
        kept.append(near[np.isin(near["id"], wanted)])
    every = np.concatenate(kept) if kept else np.empty(0, _RECORD)
    return every["id"].astype(np.int64), every["time_ns"].astype(np.int64)


def _records(path: Path) -> npt.NDArray[np.void]:
    """The whole records of a stamp file, which stay on the disk."""
    try:
        with path.open("rb") as file:
            head, size = file.read(len(_MAGIC)), os.fstat(file.fileno()).st_size
        if head != _MAGIC:
            raise InputError(f"{path}: this is no stamp file of this version of tailtap")
        count = (size - _HEADER_BYTES) // _RECORD.itemsize
        if count <= 0:
            return np.empty(0, _RECORD)
        return np.memmap(path, _RECORD, "r", _HEADER_BYTES, (count,))
    except OSError as error:
        raise InputError(f"{path}: cannot read it: {error.strerror}") from error
