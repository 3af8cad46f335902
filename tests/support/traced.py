"""Runs with a trace whose truth is known: a server on one core, and what keeps it from serving."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from stamps import write_sides

from tailtap.analysis import evaluation

Integers = npt.NDArray[np.int64]
START = 7_000_000_000_000
SECOND = 1_000_000_000
DUT, OTHER = 1, 0
"""The core that serves, and one that does not."""
SERVER, HOG, KWORKER = 500, 600, 77
IRQ, VECTOR, IPI_FUNCTION, SOFTIRQ, TASK, WORK, IDLE, LOST = 1, 2, 3, 5, 6, 8, 9, 254
FLUSH, VMSTAT, BARRIER = 0xFFFFFFFF81000000, 0xFFFFFFFF82000000, 0xFFFFFFFF83000000
SERVED_BIT, KERNEL_BIT = 1 << 48, 1 << 40
WAKE_NS, SERVICE_NS = 1_500, 2_000

NAMES = {
    "pids": {str(SERVER): "forwarder", str(HOG): "hog", str(KWORKER): "kworker/1:2"},
    "irqs": {"24": "virtio0-input.0"},
    "functions": {hex(FLUSH): "flush_tlb_func", hex(VMSTAT): "vmstat_update",
                  hex(BARRIER): "ipi_mb"},
}  # fmt: skip


class Record(NamedTuple):
    start: int
    dur: int
    kind: int
    id: int = 0
    aux: int = 0
    cpu: int = DUT
    steal: int = 0
    flags: int = 0


LAYOUT = np.dtype(
    {
        "names": list(Record._fields),
        "formats": ["<u8", "<u4", "u1", "<u4", "<u8", "<u2", "<u4", "u1"],
        "offsets": [0, 8, 12, 24, 16, 14, 28, 13],
        "itemsize": 32,
    }
)
"""Where the fields of a record are in a file."""


def hog(start: int, dur: int) -> list[Record]:
    """Another task has the core."""
    return [Record(start, dur, TASK, HOG, HOG)]


def kworker(start: int, dur: int) -> list[Record]:
    """A kworker has the core, and works nearly all of the time."""
    return [
        Record(start + 200, dur - 400, WORK, KWORKER, VMSTAT),
        Record(start, dur, TASK, KWORKER, KERNEL_BIT),
    ]


def barrier(start: int, dur: int) -> list[Record]:
    """A function call of another core."""
    return [
        Record(start + 100, dur - 200, IPI_FUNCTION, OTHER, BARRIER),
        Record(start, dur, VECTOR, 3),
    ]


def flush(start: int, dur: int) -> list[Record]:
    """Another core has this one flush its TLB."""
    return [
        Record(start + 100, dur - 200, IPI_FUNCTION, OTHER, FLUSH),
        Record(start, dur, VECTOR, 3),
    ]


def tick(start: int, dur: int) -> list[Record]:
    return [Record(start, dur, VECTOR, 1)]


def steal(start: int, dur: int) -> list[Record]:
    """The hypervisor has the core, which the interrupt behind it tells."""
    return [Record(start + dur, 300, VECTOR, 1, steal=dur)]


CAUSE_OF = {hog: "task", kworker: "kernel-thread", barrier: "function-call-ipi",
            flush: "tlb-flush", tick: "timer"}  # fmt: skip


@dataclass(frozen=True)
class Block:
    """A time in which the core does not serve: when, how long, and which function records it."""

    start: int
    dur: int
    made: Any

    @property
    def is_task(self) -> bool:
        """Whether it takes the core from the server, and does not only interrupt it."""
        return self.made in (hog, kworker, steal)


@dataclass
class Simulated:
    """Packets, the records of all cores, and the block that each packet met last, or -1."""

    ingress: Integers
    egress: Integers
    blocks: list[Block]
    records: list[Record]
    met: Integers
    ended: int
    lost: dict[str, int] = field(default_factory=dict)

    def met_at(self, egress: Integers) -> Integers:
        """The block that each packet met which left at one of these times, or -1."""
        order = np.argsort(self.egress, kind="stable")
        return self.met[order][np.searchsorted(self.egress[order], egress)]

    def causes_at(self, egress: Integers) -> list[str]:
        """What made each of them late, or none."""
        met = self.met_at(egress).tolist()
        return [CAUSE_OF[self.blocks[at].made] if at >= 0 else "none" for at in met]


def require_causes(blamed: Sequence[str], truth: Sequence[str]) -> None:
    """Nearly all packets are blamed on the cause that made them late, and hardly any other is."""
    for cause in ("task", "kernel-thread", "function-call-ipi", "timer"):
        of = np.array(truth) == cause
        right = np.array(blamed) == cause
        assert of.sum() >= 10, cause
        assert right[of].mean() >= 0.95 and right[~of].mean() <= 0.01, cause


def ticks(seconds: float, dur: int = 3_000) -> list[Block]:
    """The timer's interrupts, 250 a second."""
    return [Block(START + at * 4_000_000 + 777, dur, tick) for at in range(int(seconds * 250))]


def traffic(
    seed: int,
    seconds: float,
    *kinds: tuple[Any, int, tuple[int, int]],
    rate: int = 20_000,
    more: Sequence[Block] = (),
) -> Simulated:
    """Packets at random times, and blocks of each kind: so many, so long; and more of them."""
    random = np.random.default_rng(seed)
    blocks = [
        block
        for made, count, dur in kinds
        for block in random_blocks(made, count, dur, seconds, random)
    ]
    return simulate(arrivals(rate, seconds, random), [*blocks, *more], random)


def arrivals(rate: int, seconds: float, random: np.random.Generator) -> Integers:
    """Packets at a constant rate with a little jitter."""
    count = int(rate * seconds)
    return START + (np.arange(count) * (SECOND / rate)).astype(np.int64) + random.integers(
        0, 200, count)  # fmt: skip


def random_blocks(
    made: Any, count: int, dur: tuple[int, int], seconds: float, random: np.random.Generator
) -> list[Block]:
    starts = START + np.sort(random.integers(0, int(seconds * SECOND), count))
    durations = random.integers(*dur, count)
    return [
        Block(int(start), int(length), made)
        for start, length in zip(starts, durations, strict=True)
    ]


def apart(blocks: Sequence[Block], gap: int = 20_000) -> list[Block]:
    """The blocks in order, without those that begin before the last one ended."""
    kept: list[Block] = []
    for block in sorted(blocks, key=lambda block: block.start):
        if not kept or block.start > kept[-1].start + kept[-1].dur + gap:
            kept.append(block)
    return kept


def simulate(ingress: Integers, blocks: Sequence[Block], random: np.random.Generator) -> Simulated:
    """One task that serves packets in turn, on a core that `blocks` take from it."""
    service = SERVICE_NS + random.integers(0, 300, ingress.size)
    blocks = apart(blocks)
    egress = np.zeros_like(ingress)
    met = np.full(ingress.size, -1, np.int64)
    busy: list[tuple[int, int]] = []
    free, at, last = START, 0, -1
    for place, (arrived, length) in enumerate(zip(ingress.tolist(), service.tolist(), strict=True)):
        now = max(arrived + WAKE_NS, free)
        if arrived + WAKE_NS > free:
            last = -1
        left, begun = length, now
        while True:
            while at < len(blocks) and blocks[at].start + blocks[at].dur <= now:
                at += 1
            block = blocks[at] if at < len(blocks) else None
            if block is None or now + left <= block.start:
                break
            if block.start > now:
                left -= block.start - now
                if block.is_task:
                    busy.append((begun, block.start))
            elif block.is_task and now > begun:
                busy.append((begun, now))
            last = at
            now = block.start + block.dur
            if block.is_task or block.start <= begun:
                begun = now
        free = now + left
        busy.append((begun, free))
        egress[place], met[place] = free, last
    ended = int(max(egress[-1], blocks[-1].start + blocks[-1].dur if blocks else 0)) + 10_000
    records = [record for block in blocks for record in block.made(block.start, block.dur)]
    records += _tiles(busy, [b for b in blocks if b.is_task], ended)
    return Simulated(ingress, egress, list(blocks), records, met, ended)


def _tiles(busy: Sequence[tuple[int, int]], tasks: Sequence[Block], ended: int) -> list[Record]:
    """The server's stretches and idle between them and other tasks."""
    merged: list[list[int]] = []
    for start, end in sorted(busy):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        elif end > start:
            merged.append([start, end])
    records = [Record(start, end - start, TASK, SERVER, SERVED_BIT) for start, end in merged]
    taken = sorted([(s, e) for s, e in merged] + [(b.start, b.start + b.dur) for b in tasks])
    at = START - 1_000_000
    for start, end in [*taken, (ended, ended)]:
        while at < start:  # a record tells at most four seconds
            until = min(start, at + SECOND)
            records.append(Record(at, until - at, IDLE, 1))
            at = until
        at = max(at, end)
    return records


def packed(records: Sequence[Record]) -> bytes:
    return np.array(list(records), LAYOUT).tobytes()


def encode(records: Sequence[Record]) -> bytes:
    """A file of records, each core's in the order in which they ended."""
    rows = np.array(list(records), LAYOUT)
    start = rows["start"].astype(np.int64)
    return b"TTTRACE1" + rows[np.lexsort((-start, start + rows["dur"]))].tobytes()


def write_run(folder: Path, found: Simulated, **changes: Any) -> Path:
    """A run folder with stamps, evaluation and trace; `changes` are keys of trace.json."""
    folder.mkdir(parents=True)
    write_sides(folder, found.ingress, found.egress)
    evaluation.evaluate(folder / "ingress.stamps", folder / "egress.stamps").write(
        folder / "evaluation"
    )
    run = {
        "schema": "tailtap.run/1", "number": 1, "slug": folder.name, "repeat": 1, "status": "done",
        "error": None, "name": "traced", "variables": {}, "warnings": [], "generator": None,
        "taps": None, "parameters": {"dut": {"platform": "bare-metal"}, "traffic": {}},
        "environment": {"boot_id": "b"}, "started": "2026-11-01T14:00:00+00:00", "finished": None,
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(run))
    (folder / "trace.events").write_bytes(encode(found.records))
    trace = {
        "schema": "tailtap.trace/1", "clock": "monotonic", "boot_id": "b", "mode": "thin",
        "cpus": [OTHER, DUT], "started_ns": START - 1_000_000, "ended_ns": found.ended,
        "records": len(found.records), "lost": found.lost, "missing": [], "substitutes": [],
        "steal": True, "floor_ns": 1000, "names": NAMES, "kernel": "6.18",
        "served": {"by": "task", "pids": [SERVER], "cpus": [DUT]},
    }  # fmt: skip
    (folder / "trace.json").write_text(json.dumps({**trace, **changes}))
    return folder


def write_two_causes(folder: Path) -> Path:
    """An experiment folder with one traced run; returns the run's folder."""
    found = traffic(
        5, 2.0, (hog, 14, (1_200_000, 1_500_000)), (kworker, 40, (300_000, 500_000)), rate=10_000
    )  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "experiment.yaml").write_text("name: told\n")
    return write_run(folder / "runs" / "001-told", found)
