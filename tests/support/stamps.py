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


OPEN = (2**64 - 1,) * 4
"""The counts of a file that is not closed."""


def header(counts: tuple[int, ...]) -> bytes:
    """The beginning of a stamp file with these counts: seen, stored, lost, other."""
    return HEADER.pack(b"\x89TTSTMP\n", 1, 16, 1, *counts, b"link")


def records(times: npt.ArrayLike, ids: npt.ArrayLike) -> npt.NDArray[Any]:
    time = np.asarray(times)
    made = np.zeros(time.size, RECORD)
    made["time"], made["id"], made["len"] = time, np.asarray(ids), 60
    return made


def write_stamps(path: Path, times: npt.ArrayLike, ids: npt.ArrayLike) -> None:
    """Writes a closed stamp file of the given times in ns and ids, quickly."""
    written = records(times, ids)
    path.write_bytes(header((written.size, written.size, 0, 0)) + written.tobytes())


def write_sides(folder: Path, ingress: npt.ArrayLike, egress: npt.ArrayLike, *lost: int) -> Path:
    """Writes both stamp files of packets, by their times in ns; those whose numbers are `lost`
    have none behind the device. The folder.
    """
    left = np.asarray(egress)
    kept = np.setdiff1d(np.arange(left.size), lost)
    order = kept[np.argsort(left[kept], kind="stable")]
    write_stamps(folder / "ingress.stamps", ingress, np.arange(left.size))
    write_stamps(folder / "egress.stamps", left[order], order)
    return folder


def on_cpu(path: Path, cpu: npt.ArrayLike) -> None:
    """Has a stamp file say on which CPU each stamp was made, or all of them."""
    data = path.read_bytes()
    changed = np.frombuffer(data, RECORD, offset=64).copy()
    changed["flags"] = cpu
    path.write_bytes(data[:64] + changed.tobytes())
