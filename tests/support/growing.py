"""Stamp files as a tap writes them, bit by bit: made packets through a made device."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from stamps import OPEN, header, records

SECOND = 1_000_000_000
Records = npt.NDArray[Any]


@dataclass
class Traffic:
    """Packets before and behind a device, by the clock of the taps."""

    ingress: Records
    egress: Records

    @classmethod
    def made(
        cls,
        seconds: float,
        rate: int = 1000,
        *,
        seed: int = 1,
        late: dict[int, int] | None = None,
        lost: tuple[int, ...] = (),
        start: int = 1000 * SECOND,
    ) -> Traffic:
        """`late` adds to the latency of packets by their number, `lost` are those that stay."""
        numbers = np.arange(int(seconds * rate))
        times = start + numbers * (SECOND // rate)
        latencies = np.random.default_rng(seed).integers(3_000, 60_000, numbers.size)
        for number, more in (late or {}).items():
            latencies[number] += more
        stays = np.ones(numbers.size, bool)
        stays[list(lost)] = False
        behind = records((times + latencies)[stays], numbers[stays])
        return cls(records(times, numbers), behind[np.argsort(behind["time"], kind="stable")])

    @property
    def sides(self) -> dict[str, Records]:
        return {"ingress": self.ingress, "egress": self.egress}

    def grow(self, folder: Path, until: int, torn: int = 0) -> None:
        """Write what was stamped before a time into one file a side; `torn` bytes of the next."""
        for name, side in self.sides.items():
            until_here = side[side["time"] < until].tobytes() + side.tobytes()[:torn]
            (folder / f"{name}.stamps").write_bytes(header(OPEN) + until_here)

    def rotate(self, folder: Path, until: int, every: int = SECOND, *, gone: bool = False) -> None:
        """Write it into numbered files, all but the last of which are closed.

        Where files may be `gone`, only the last two are written.
        """
        for name, side in self.sides.items():
            written = side[side["time"] < until]
            first = int(side["time"][0])
            places = (written["time"].astype(np.int64) - first) // every
            last = int(places[-1]) if places.size else 0
            for place in range(max(0, last - 1) if gone else 0, last + 1):
                part = written[places == place]
                counts = (part.size, part.size, 0, 0) if place < last else OPEN
                path = folder / f"{name}-{place + 1:05}.stamps"
                if path.exists() or not place or part.size or place == last:
                    _replace(path, header(counts) + part.tobytes())


def _replace(path: Path, content: bytes) -> None:
    draft = path.with_suffix(".draft")
    draft.write_bytes(content)
    draft.replace(path)


def write_trace(folder: Path, number: int, rows: list[tuple[int, int, int, int, int, int]]) -> None:
    """``trace-NNNNN.events`` of (start, duration, kind, cpu, aux, id)."""
    packed = b"".join(
        struct.pack("<QQQQ", start, dur | kind << 32 | cpu << 48, aux, id_)
        for start, dur, kind, cpu, aux, id_ in rows
    )
    (folder / f"trace-{number:05}.events").write_bytes(b"TTTRACE1" + packed)
