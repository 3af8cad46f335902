"""Stamp files, read without tailtap."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

RECORD = np.dtype([("time", "<u8"), ("id", "<u4"), ("len", "<u2"), ("flags", "<u2")])
HEADER = struct.Struct("<8sHHI4Q16s")


def read_stamps(path: Path, clock: int = 1) -> tuple[tuple[int, ...], npt.NDArray[Any]]:
    """Counts (seen, stored, lost, other) and records of a stamp file of this clock."""
    data = path.read_bytes()
    magic, version, size, stated, *counts, _ = HEADER.unpack_from(data)
    assert (magic, version, size, stated) == (b"\x89TTSTMP\n", 1, 16, clock)
    return tuple(counts), np.frombuffer(data, RECORD, offset=64)


def write_stamps(path: Path, times: npt.ArrayLike, ids: npt.ArrayLike) -> None:
    """Writes a closed stamp file of the given times in ns and ids, quickly."""
    time = np.asarray(times)
    records = np.zeros(time.size, RECORD)
    records["time"], records["id"], records["len"] = time, np.asarray(ids), 60
    header = (b"\x89TTSTMP\n", 1, 16, 1, time.size, time.size, 0, 0, b"link")
    path.write_bytes(HEADER.pack(*header) + records.tobytes())
