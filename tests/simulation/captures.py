"""What taps and capture programs write of packets that pass them, and what they miss."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from blocks import enhanced, interface, section, statistics
from captures import COMPRESSIONS, compressed, erf, mscap, pcap, stamps
from captures import MICROSECONDS as MICROSECONDS_MAGIC
from marks import RECORD, header

from tailtap.analysis.evaluation.sources import Source
from tests.simulation.draw import Draw

SECOND = 1_000_000_000
SHORT = 15_000
"""Copies of mirror ports come within that many ns."""
MANY = 500
"""Of so many packets on the steps of a clock show, also if a capture has a part of them."""
STRANGE = 1_000_000
"""Numbers of packets that are none of the traffic's begin here."""


@dataclass(frozen=True)
class Row:
    """A packet as it is in a capture."""

    at: int
    """When it passed the point of the capture."""
    number: int
    data: bytes
    stamp: int = 0
    """What the capture says of that, in the steps of its clock."""
    copy: bool = False
    """Whether a mirror port added it."""


@dataclass(frozen=True)
class Recorded:
    """One side's capture."""

    rows: tuple[Row, ...]
    """What is in it, in the order of the file; times in ns, by the clock's steps."""
    step: int = 1
    """The steps in which its stamps come."""
    shows: bool = True
    """Whether the stamps show that they come in steps."""
    ran: tuple[int, int] = (0, 1 << 62)
    """From when until when it ran."""
    missed: frozenset[int] = frozenset()
    """Numbers of packets that passed meanwhile and are not in it."""
    told: int = 0
    """How many missing packets the file tells of itself."""
    copies: int = 0
    """How many rows a mirror port added."""

    @property
    def is_in_order(self) -> bool:
        return list(self.rows) == in_order(self.rows)

    def first(self) -> dict[int, Row]:
        """The first row of each packet, by number."""
        return {row.number: row for row in reversed(in_order(self.rows))}


def recorded(draw: Draw, side: str, passing: Sequence[Row], *, frames: bool) -> Recorded:
    """What the capture of a side holds of what passes it, in the order of time.

    `frames` says whether it holds frames, and not ids alone.
    """
    step = 1
    if frames and len(passing) > MANY and draw.has(f"{side} steps", 0.25):
        step = draw.choice(f"{side} steps", (8, 1_000, 1_000, 1_000_000))
    capture = _missing(draw, side, _within(draw, side, Recorded(tuple(passing))))
    if frames and step < SHORT and draw.has(f"{side} mirrored", 0.15):
        capture = _mirrored(draw.stream(f"{side} mirrored"), capture)
    # Not all keys have the strange ones in them.
    ours = [row for row in capture.rows[:1_000] if not row.copy and row.number < STRANGE]
    shows = _shows([row.at // step for row in ours])
    step = step if shows or step == 1_000 else 1
    rows = [replace(row, stamp=row.at // step * step) for row in capture.rows]
    if not capture.copies and draw.has(f"{side} out of order", 0.1):
        for at in draw.stream(f"{side} out of order").integers(0, max(1, len(rows) - 1), 3):
            rows[at : at + 2] = reversed(rows[at : at + 2])
    return replace(capture, rows=tuple(rows), step=step, shows=shows)


def _shows(ticks: Sequence[int]) -> bool:
    """Whether these are a clock's, and no regular traffic's: many gaps, or packets between them."""
    gaps = set(np.diff(ticks).tolist())
    return len(ticks) > MANY // 5 and (len(gaps) > 20 or (0 in gaps and len(gaps) > 1))


def _within(draw: Draw, side: str, capture: Recorded) -> Recorded:
    """A capture that begins late, ends early, or both."""
    rows = capture.rows
    if not rows:
        return capture
    first, last = rows[0].at, rows[-1].at
    from_ns, until_ns = capture.ran
    if draw.has(f"{side} begins late", 0.2):
        from_ns = draw.between(f"{side} from", first, (first + last) // 2)
    if draw.has(f"{side} ends early", 0.2):
        until_ns = draw.between(f"{side} until", (first + last) // 2, last)
    kept = tuple(row for row in rows if from_ns <= row.at <= until_ns)
    return replace(capture, rows=kept, ran=(from_ns, until_ns))


def _missing(draw: Draw, side: str, capture: Recorded) -> Recorded:
    """A capturing program that loses packets, and may count them."""
    if not draw.has(f"{side} misses", 0.15):
        return capture
    stream = draw.stream(f"{side} misses")
    kept = stream.random(len(capture.rows)) >= stream.choice([0.001, 0.05])
    gone = [row for row, keeps in zip(capture.rows, kept, strict=True) if not keeps]
    return replace(
        capture,
        rows=tuple(row for row, keeps in zip(capture.rows, kept, strict=True) if keeps),
        missed=frozenset(row.number for row in gone),
        told=len(gone) * draw.has(f"{side} counts them", 0.5),
    )


def _mirrored(stream: np.random.Generator, capture: Recorded) -> Recorded:
    """A mirror port that shows all packets twice, or some of many.

    Of few copies the device may repeat each one's packet: then these are packets that were equal.
    """
    number = len(capture.rows)
    chosen = stream.random(number) < (stream.choice([0.1, 1.0]) if number > MANY // 5 else 1.0)
    later = stream.integers(100, SHORT, number)
    again = [
        replace(row, at=row.at + int(apart), copy=True)
        for row, twice, apart in zip(capture.rows, chosen, later, strict=True)
        if twice
    ]
    rows = in_order((*capture.rows, *again), by_stamp=False)
    return replace(capture, rows=tuple(rows), copies=len(again))


Framed = Sequence[tuple[int, bytes]]
Write = Callable[[Framed, int], bytes]
"""Makes a file of (time in ns, frame), which tells of so many missing packets."""


def pcapng(packets: Framed, missing: int, *, resolution: int | None = 9, order: str = "<") -> bytes:
    """A file of one interface, whose stamps are in these units."""
    head = section(order) + interface(resolution=resolution, order=order)
    units = [(units_of(time, resolution), data) for time, data in packets]
    tail = statistics(missing, order=order) if missing else b""
    return head + b"".join(enhanced(*one, order=order) for one in units) + tail


def units_of(time: int, resolution: int | None) -> int:
    """A time in ns in the units of an option if_tsresol; what is cut off is less than one."""
    if resolution is None:
        return time // 1_000
    if resolution & 0x80:
        return -(-(time << (resolution & 0x7F)) // SECOND)
    units: int = time * 10**resolution // SECOND
    return units


def _pcap(packets: Framed, missing: int, **how: Any) -> bytes:
    return pcap(packets, **how)


FINE: dict[str, Write] = {
    "pcap": _pcap,
    "pcap swapped": partial(_pcap, order=">"),
    "pcapng": pcapng,
    "pcapng swapped": partial(pcapng, order=">"),
    "pcapng ps": partial(pcapng, resolution=12),
    "pcapng 2^-31": partial(pcapng, resolution=0x80 | 31),
    "erf": lambda packets, missing: erf(packets, drops=missing),
}
COARSE: dict[str, Write] = {
    "pcap us": partial(_pcap, magic=MICROSECONDS_MAGIC),
    "pcap us swapped": partial(_pcap, magic=MICROSECONDS_MAGIC, order=">"),
    "pcapng us": partial(pcapng, resolution=None),
    "pcapng 10^-6": partial(pcapng, resolution=6),
}
"""Formats of frames whose stamps are nanoseconds, and microseconds."""
IDS = ("stamps", "mscap", "marks", "pcapng")
"""Formats in which packets are followed by their ids."""
COUNTING = ("pcapng", "erf", "stamps")
"""Formats that can tell of missing packets begin so."""


@dataclass(frozen=True)
class Files:
    """A capture as it was written."""

    source: Source
    format: str
    unit: int
    """What the files say that their stamps are multiples of, in ns."""


def written(draw: Draw, side: str, folder: Path, capture: Recorded, *, frames: bool) -> Files:
    """The files of a side."""
    if not frames:
        return _of_ids(draw, side, folder, capture)
    names = list(FINE) * (capture.shows or capture.step == 1)
    names += list(COARSE) * (capture.step % 1_000 == 0)
    name = draw.choice(f"{side} format", names) if draw.has(f"{side} format", 0.6) else names[0]
    if capture.told and not name.startswith(COUNTING):
        name = "pcapng us" if capture.step == 1_000 else "pcapng"
    write, unit = ({**FINE, **COARSE})[name], 1_000 if name in COARSE else 1
    suffix = ".erf" if name == "erf" else ""
    packets = [(row.stamp, row.data) for row in capture.rows]
    if len(packets) > 8 and draw.has(f"{side} check sequences", 0.1):
        packets = [(time, data + crc32(data).to_bytes(4, "little")) for time, data in packets]
    if packets and draw.has(f"{side} ring", 0.1) and not capture.told:
        return Files(_ring(draw, side, folder, packets, write, suffix), name, unit)
    path = folder / (side + suffix)
    path.write_bytes(compressed(write(packets, capture.told), _compression(draw, side)))
    return Files(Source(str(path), (path,)), name, unit)


def _compression(draw: Draw, side: str) -> str:
    if not draw.has(f"{side} compressed", 0.15):
        return ""
    return draw.choice(f"{side} compressed", COMPRESSIONS)


def _of_ids(draw: Draw, side: str, folder: Path, capture: Recorded) -> Files:
    name = draw.choice(f"{side} ids", IDS) if draw.has(f"{side} ids", 0.6) else "stamps"
    packets = [(row.stamp, row.number) for row in capture.rows]
    if name == "marks":
        data = _marks(capture)
    elif name == "pcapng":
        data = pcapng([(row.stamp, row.data) for row in capture.rows], capture.told)
    elif name == "mscap" and not capture.told:
        data = mscap(packets)
    else:
        name, stored = "stamps", len(packets)
        data = stamps(packets, counts=(stored + capture.told, stored, capture.told, 0))
    path = folder / f"{side}.{name}"
    path.write_bytes(compressed(data, _compression(draw, side)))
    return Files(Source(str(path), (path,)), name, 1)


def _marks(capture: Recorded) -> bytes:
    rows = [(row.stamp, row.number, len(row.data), 0, 0, 1) for row in capture.rows]
    stored = len(rows)
    counts = (stored + capture.told, stored, capture.told, 0, 0, 0)
    return header(counts, ((0, 0),), "moonsniff") + np.array(rows, RECORD).tobytes()


def _ring(
    draw: Draw, side: str, folder: Path, packets: Framed, write: Write, suffix: str
) -> Source:
    """Several files, whose names have any order."""
    files = draw.between(f"{side} files", 2, 5)
    size = max(1, -(-len(packets) // files))
    parts = [packets[at : at + size] for at in range(0, len(packets), size)]
    names = draw.stream(f"{side} names").permutation(len(parts))
    (folder / side).mkdir()
    for name, part in zip(names, parts, strict=True):
        (folder / side / f"{name}{suffix}").write_bytes(write(part, 0))
    return Source(str(folder / side), tuple(sorted((folder / side).iterdir())))


def both_in_one(folder: Path, sides: Iterable[Recorded]) -> list[Files]:
    """Both captures as two interfaces of one file, in the order of time."""
    rows = [(row.stamp, on, row.data) for on, side in enumerate(sides) for row in side.rows]
    rows.sort(key=lambda row: row[0])
    data = section() + interface(name="eth0") + interface(name="eth1")
    path = folder / "both"
    path.write_bytes(data + b"".join(enhanced(time, frame, on) for time, on, frame in rows))
    return [Files(Source(str(path), (path,), f"interface:{on}"), "pcapng", 1) for on in (0, 1)]


def in_order(rows: Iterable[Row], *, by_stamp: bool = True) -> list[Row]:
    """The rows in the order of their stamps, or of the times that these are of."""
    return sorted(rows, key=lambda row: row.stamp if by_stamp else row.at)


def overtaken(pairs: Iterable[tuple[int, int]]) -> int:
    """By how much packets overtake each other at most, of times before and behind the device."""
    before = np.array([came for came, _ in sorted(pairs, key=lambda pair: pair[1])], np.int64)
    return int((np.maximum.accumulate(before) - before).max(initial=0))
