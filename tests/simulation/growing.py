"""Captures of two taps that write while the packets pass."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import captures
import marks
import numpy as np
import numpy.typing as npt
import stamps

from tests.simulation.draw import Draw
from tests.simulation.machine import Integers

SECOND = 1_000_000_000
KINDS = ("stamps", "marks", "pcap")


def records(kind: str, times: Integers, ids: Integers) -> npt.NDArray[Any]:
    """What a tap writes of each packet."""
    if kind == "pcap":
        return captures.records(times, ids)
    if kind == "stamps":
        return stamps.records(times, ids)
    made = np.zeros(times.size, marks.RECORD)
    made["time"], made["key"], made["len"] = times, ids, 60
    return made


def header(kind: str, closed: int | None) -> bytes:
    """The beginning of a file, with how many records it has when it is `closed`."""
    if kind == "pcap":
        return captures.pcap([])
    if kind == "stamps":
        return stamps.header(stamps.OPEN if closed is None else (closed, closed, 0, 0))
    counts = marks.OPEN if closed is None else (closed, closed, 0, 0, 0, 0)
    return marks.header(counts, ((0, 0),), "moonsniff")


@dataclass
class Tap:
    """The tap of one side, which writes what it stamped now and then."""

    path: Path
    """Its file, or what its files are called after."""
    times: Integers
    """Of all packets that it stamps, ascending; their ids."""
    ids: Integers
    every_ns: int | None = None
    """How long one of its files is, where it begins another one after a while."""
    written_ns: int = 0
    """What was stamped before is on the disk."""
    _closed: set[int] = field(default_factory=set)

    @property
    def kind(self) -> str:
        return self.path.suffix[1:]

    def write(self, until_ns: int, torn: int = 0) -> None:
        """Write what was stamped before a time, and so many bytes of what comes next."""
        self.written_ns = max(self.written_ns, until_ns)
        made = records(self.kind, self.times, self.ids)
        there = int(np.searchsorted(self.times, self.written_ns))
        rest = made[there : there + 1].tobytes()[:torn]
        if self.every_ns is None:
            self.path.write_bytes(header(self.kind, None) + made[:there].tobytes() + rest)
            return
        places = (self.times[:there] - self.times[:1]) // self.every_ns
        last = int(places[-1]) if there else 0
        for place in sorted(set(places.tolist()) | {last} - self._closed):
            part = made[:there][places == place]
            begun = header(self.kind, None if place == last else part.size) + part.tobytes()
            if place not in self._closed:
                self._replace(place, begun + (rest if place == last else b""))
            if place != last:
                self._closed.add(place)

    def write_whole(self, path: Path) -> None:
        """Write all of it into one file that is closed."""
        made = records(self.kind, self.times, self.ids)
        path.write_bytes(header(self.kind, made.size) + made.tobytes())

    def _replace(self, place: int, content: bytes) -> None:
        path = self.path.with_name(f"{self.path.stem}-{place + 1:05}{self.path.suffix}")
        draft = path.with_suffix(".draft")
        draft.write_bytes(content)
        draft.replace(path)


def tap(draw: Draw, path: Path, times: Integers, ids: Integers, *, rotated: bool) -> Tap:
    """One that sorts what it stamps."""
    order = np.argsort(times, kind="stable")
    every = draw.magnitude("files", SECOND // 4, 10 * SECOND) if rotated else None
    return Tap(path, times[order], ids[order], every)
