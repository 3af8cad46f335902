"""Files of marks, read without tailtap."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

HEADER_LEN = 4096
OPEN = (2**64 - 1,) * 6
"""The counts of a file that is not closed."""
HEADER = struct.Struct("<8sHHI6QII24s32s")
SAMPLE = struct.Struct("<QB7x")
RECORD = np.dtype(
    [
        ("time", "<u8"), ("key", "<u8"), ("len", "<u4"),
        ("flags", "u1"), ("level", "u1"), ("cpu", "<u2"),
    ]
)  # fmt: skip


@dataclass(frozen=True)
class Marks:
    """A file of marks."""

    seen: int
    stored: int
    lost: int
    other: int
    filtered: int
    unsampled: int
    key: str
    samples: list[tuple[int, int]]
    """From which time on, and the binary logarithm of how many packets there are for each."""
    records: npt.NDArray[Any]


def read_marks(path: Path, clock: int = 1) -> Marks:
    """A file of marks of this clock."""
    data = path.read_bytes()
    magic, version, size, stated, *rest = HEADER.unpack_from(data)
    assert (magic, version, size, stated) == (b"\x89TTMARK\n", 1, RECORD.itemsize, clock)
    seen, stored, lost, other, filtered, unsampled, _, number, _, key = rest
    samples: list[tuple[int, int]] = []
    for place in range(number):
        since, level = SAMPLE.unpack_from(data, 128 + 16 * place)
        samples.append((since, level))
    records = np.frombuffer(data, RECORD, offset=HEADER_LEN)
    name = key.rstrip(b"\0").decode()
    return Marks(seen, stored, lost, other, filtered, unsampled, name, samples, records)


Samples = tuple[tuple[int, int], ...]


def write_marks(
    path: Path, records: npt.NDArray[Any], *, key: str = "packet", samples: Samples = ((0, 0),)
) -> None:
    """Writes a closed file of marks."""
    counts = (len(records), len(records), 0, 0, 0, 0)
    path.write_bytes(header(counts, samples, key) + records.tobytes())


def marks(
    packets: Iterable[tuple[int, int]], *, samples: Samples = ((0, 0),), closed: bool = True
) -> bytes:
    """A file of marks of (time in ns, id), of MoonSniff's ids."""
    records = np.array([(time, key, 60, 0, 4, 1) for time, key in packets], RECORD)
    counts = (len(records), len(records), 0, 0, 0, 0) if closed else OPEN
    return header(counts, samples, "moonsniff") + records.tobytes()


def header(counts: tuple[int, ...], samples: Samples, key: str) -> bytes:
    """The beginning of a file of marks."""
    first = (b"\x89TTMARK\n", 1, RECORD.itemsize, 1)
    packed = HEADER.pack(*first, *counts, 160, len(samples), b"link", key.encode())
    packed += b"".join(SAMPLE.pack(*sample) for sample in samples)
    return packed.ljust(HEADER_LEN, b"\0")
