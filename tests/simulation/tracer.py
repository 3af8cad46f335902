"""A tracer on the machine of a seed, which may lose records, pause, begin late, or be cut off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.simulation.device import CORE, HOG, LOCKER, NAMES, NEIGHBOUR, Device, served_by
from tests.simulation.draw import Draw
from tests.simulation.machine import Integers
from tests.simulation.records import (
    CONTEXT_TASK,
    LOST,
    Records,
    columns,
    ends,
    of_course,
    of_sender,
    packed,
    write_trace,
)

FUNCTION = 3
GENERATOR, QUEUED = 700, 0xFFFFFFFF84000000
"""The generator's thread, and the function by which it tells the core of packets."""
FLOOR_NS = 1_000
PROCESSES = 1_000
"""Where the pids of processes begin, if one program is many of them."""
ALIKE = {"hog, FIFO 50, batch": "hog", "hog, user.slice": "locker"}
"""What two tasks of one name are called, by the causes of the machine."""


@dataclass
class Told:
    """What the tracer says of a device, and what it does not."""

    made: Device
    records: Records
    began: int
    ended: int
    floor_ns: int = 0
    senders: list[int] = field(default_factory=list)
    """Those that tell the core of packets."""
    lost: int = 0
    """Records of the serving core that had no room."""
    paused_ns: int = 0
    missing: list[str] = field(default_factory=list)
    end: int | None = None
    """How many bytes of the file there are; None: all."""
    dark: list[tuple[int, int]] = field(default_factory=list)
    """When nothing was recorded on the serving core."""
    unseen: list[tuple[int, int]] = field(default_factory=list)
    """When what had the serving core may have no record."""
    names: dict[str, dict[str, Any]] = field(default_factory=lambda: dict(NAMES))

    @property
    def whole(self) -> bool:
        return not self.unseen

    @property
    def known_lost(self) -> int:
        """How many records were lost by what there is of the file."""
        there = self.records[: None if self.end is None else (self.end - 8) // 32]
        return int(there["aux"][there["kind"] == LOST].sum())

    def meets(self, since: Integers, until: Integers) -> Any:
        """Whether each of these times has a moment of which the trace may not tell."""
        found = (since < self.began) | (until > self.ended)
        for start, end in self.unseen:
            found |= (since < end) & (until > start)
        return found

    def within(self, since: Integers, until: Integers) -> Any:
        """Whether nothing was recorded in the whole of each of these times."""
        found = np.zeros(since.size, bool)
        for start, end in self.dark:
            found |= (since >= start) & (until <= end)
        return found

    def write(self, folder: Path) -> None:
        """The files of the trace."""
        write_trace(
            folder, self.records, cpus=[CORE] if self.senders else [NEIGHBOUR, CORE],
            senders=self.senders, started_ns=self.began, ended_ns=self.ended, names=self.names,
            served=served_by(self.made.core.server), paused_ns=self.paused_ns,
            lost={str(CORE): self.lost} if self.lost else {},
            missing=self.missing, floor_ns=self.floor_ns,
        )  # fmt: skip
        if self.end is not None:
            (folder / "trace.events").write_bytes(packed(self.records)[: self.end])


def traced(draw: Draw, made: Device) -> Told:
    """What a tracer tells of a device."""
    floor_ns = FLOOR_NS if draw.has("short ones added up", 0.4) else 0
    older = draw.has("older kernel", 0.1)
    missing = [FUNCTION] * older
    mine = of_course(made.core, CORE, floor_ns, (NEIGHBOUR | GENERATOR << 10, QUEUED), missing)
    senders = [] if made.sender is None or not draw.has("sender is traced", 0.8) else [NEIGHBOUR]
    other = made.neighbour if made.sender is None else made.sender
    if senders:
        beside = of_sender(other, NEIGHBOUR, CORE)
    else:
        beside = of_course(other, NEIGHBOUR, missing=missing)
    both = np.concatenate([mine, beside])
    both = both[np.argsort(ends(both), kind="stable")]
    told = Told(made, both, made.began, made.ended, floor_ns, senders)
    told.missing = ["ipi-function"] * older
    if draw.has("names alike", 0.3):
        _name_alike(told, many=draw.has("many processes", 0.5))
    first, length = int(made.sent[0]), int(np.ptp(made.sent))
    if draw.has("trace begins late", 0.1):
        told.began = first + draw.between("trace begins late", 0, length // 3)
        _leave_out(told, told.records["start"].astype(np.int64) < told.began)
    if draw.has("trace ends early", 0.1):
        told.ended = first + draw.between("trace ends early", length // 2, length)
        _leave_out(told, told.records["start"].astype(np.int64) >= told.ended)
        told.records = told.records[
            (told.records["flags"] == 0) | (ends(told.records) <= told.ended)
        ]
        told.records["dur"] = np.minimum(
            told.records["dur"], told.ended - told.records["start"].astype(np.int64)
        )  # what goes on then is told up to then
    if draw.has("lost records", 0.2):
        for start, end in _windows(draw, "lost records", made):
            _lose(told, start, end, pauses=False)
    elif draw.has("tracer pauses", 0.15):
        for start, end in _windows(draw, "tracer pauses", made):
            _lose(told, start, end, pauses=True)
    if draw.has("trace is cut", 0.1):
        size = 8 + 32 * told.records.size
        told.end = draw.between("trace is cut", size // 2, size - 1)
        gone = np.arange(told.records.size) >= (told.end - 8) // 32
        _note(told, gone)
    return told


def _name_alike(told: Told, *, many: bool) -> None:
    """The hog and the locking task have one name, and policies and groups of their own; the hog may
    be many processes, which have ended when anybody looks."""
    records, pids = told.records, [HOG]
    if many:
        mine = (records["kind"] == CONTEXT_TASK) & (records["id"] == HOG)
        pids = [PROCESSES + place for place in range(20)]
        records["id"][mine] = np.resize(pids, mine.sum())
        records["aux"][mine] = records["id"][mine]
    hog = {"policy": "FIFO", "priority": 50, "cgroup": "/system.slice/batch"}
    other = {"policy": "OTHER", "priority": 0, "cgroup": "/user.slice", "command": "hog --decoy"}
    tasks = {str(pid): {"pid": pid, **hog} for pid in pids}
    tasks[str(LOCKER)] = {"pid": LOCKER, **other}
    told.names |= {"pids": NAMES["pids"] | dict.fromkeys(tasks, "hog"), "tasks": tasks}


def _windows(draw: Draw, name: str, made: Device) -> Iterator[tuple[int, int]]:
    """Times that follow each other, around some packets."""
    stream, sent = draw.stream(name), made.sent
    number = int(stream.integers(1, 5))
    lengths = made.load.gap_ns * stream.integers(1, max(2, sent.size // 20), number)
    at = 0
    for place, length in zip(np.sort(stream.integers(0, sent.size, number)), lengths,
                             strict=True):  # fmt: skip
        start = int(sent[place]) + int(stream.integers(-2_000, 2_000))
        if start > at:
            at = start + int(length)
            yield start, at


def _note(told: Told, gone: Any) -> None:
    mine = gone & (told.records["cpu"] == CORE) & (told.records["kind"] != LOST)
    starts = told.records["start"][mine].astype(np.int64)
    told.unseen += [*zip(starts.tolist(), ends(told.records)[mine].tolist(), strict=True)]


def _leave_out(told: Told, gone: Any) -> None:
    _note(told, gone)
    told.records = told.records[~gone]


def _lose(told: Told, start: int, end: int, *, pauses: bool) -> None:
    """Nothing of the serving core that ends in a time has a record, but for one that says so."""
    over = ends(told.records)
    gone = (told.records["cpu"] == CORE) & (over >= start) & (over < end)
    gone &= told.records["kind"] != LOST
    if not gone.any():
        return
    if pauses:
        told.paused_ns += end - start
    else:
        start = int(over[gone].min())
        told.lost += int(gone.sum())
    _leave_out(told, gone)
    count = 0 if pauses else int(gone.sum())
    dark = columns(np.array([start]), np.array([end - start]), kind=LOST, aux=count, cpu=CORE)
    mixed = np.concatenate([told.records, dark])
    told.records = mixed[np.argsort(ends(mixed), kind="stable")]
    after = told.records[(told.records["cpu"] == CORE) & (ends(told.records) > end)]
    until = int(ends(after)[0]) if after.size else told.ended
    told.dark.append((start, end))
    told.unseen.append((start, max(end, until)))
