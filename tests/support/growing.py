"""Packets before and behind a device, stamped by two taps that write now and then."""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np

from tests.simulation.growing import SECOND, Tap

START = 1000 * SECOND
RATE = 1000


def taps(
    folder: Path,
    seconds: int,
    *,
    late: Mapping[int, int] | None = None,
    lost: Collection[int] = (),
    every_ns: int | None = None,
) -> list[Tap]:
    """Those of both sides; each begins another file after `every_ns`, if that is given.

    `late` adds to the latency of packets by their number, `lost` are those that stay.
    """
    numbers = np.arange(seconds * RATE)
    came = START + numbers * (SECOND // RATE)
    left = came + np.random.default_rng(1).integers(3_000, 60_000, numbers.size)
    for number, more in (late or {}).items():
        left[number] += more
    order = np.setdiff1d(numbers, [*lost])
    order = order[np.argsort(left[order], kind="stable")]
    return [
        Tap(folder / "ingress.stamps", came, numbers, every_ns),
        Tap(folder / "egress.stamps", left[order], order, every_ns),
    ]


def write_trace(folder: Path, number: int, rows: list[tuple[int, int, int, int, int, int]]) -> None:
    """``trace-NNNNN.events`` of (start, duration, kind, cpu, aux, id)."""
    packed = b"".join(
        struct.pack("<QQQQ", start, dur | kind << 32 | cpu << 48, aux, id_)
        for start, dur, kind, cpu, aux, id_ in rows
    )
    (folder / f"trace-{number:05}.events").write_bytes(b"TTTRACE1" + packed)
