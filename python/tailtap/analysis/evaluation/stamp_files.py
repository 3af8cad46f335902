"""Looking packets up in stamp files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from tailtap.analysis.evaluation.values import Column
from tailtap.records.stamps import RECORD, read_stamps

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


def ids_at(path: Path, times_ns: Column) -> tuple[Column, Column]:
    """Times and ids of all stamps of a tap that were taken at one of some times, by time.

    Raises `InputError` when `path` is no stamp file.
    """
    wanted = np.unique(times_ns).astype(np.uint64)
    kept: list[npt.NDArray[np.void]] = []
    records = read_stamps(path)
    for start in range(0, len(records), _CHUNK):
        chunk = records[start : start + _CHUNK]
        times = np.ascontiguousarray(chunk["time_ns"])
        place = np.searchsorted(wanted, times)
        kept.append(
            chunk[(place < wanted.size) & (wanted[np.minimum(place, wanted.size - 1)] == times)]
        )
    every = np.concatenate(kept) if kept else np.empty(0, RECORD)
    order = np.argsort(every["time_ns"], kind="stable")
    return every["time_ns"].astype(np.int64)[order], every["id"].astype(np.int64)[order]


def _with_ids(path: Path, ids: Column) -> tuple[Column, Column]:
    """Ids and times of all records with one of these ids."""
    wanted = np.unique(ids)
    # Most records end here, which costs little.
    candidates = np.zeros(_LOW_BITS + 1, bool)
    candidates[wanted & _LOW_BITS] = True
    kept: list[npt.NDArray[np.void]] = []
    records = read_stamps(path)
    for start in range(0, len(records), _CHUNK):
        chunk = records[start : start + _CHUNK]
        near = chunk[candidates[chunk["id"] & _LOW_BITS]]
        kept.append(near[np.isin(near["id"], wanted)])
    every = np.concatenate(kept) if kept else np.empty(0, RECORD)
    return every["id"].astype(np.int64), every["time_ns"].astype(np.int64)
