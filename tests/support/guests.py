"""Runs in a virtual machine whose truth is known: what the guest did, and what its host did to it.

The server of `traced.simulate` is a task of the guest. Blocks of `host_hog` are the host's: another
task has the core of the guest's only serving CPU, and the guest does not see it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from stamps import write_stamps
from traced import (
    DUT,
    HOG,
    NAMES,
    SECOND,
    SERVED_BIT,
    SERVER,
    START,
    TASK,
    Record,
    Simulated,
    encode,
    write_run,
)

VCPU, SPARE = 901, 900
"""Threads of the host: the guest's CPU 1, which serves, and its CPU 0."""
SEAT = 1
IN_NS, OUT_NS = 800, 500
"""What the quickest packets take from the host's stamp to the guest's, and back."""
HOST_NAMES = {"pids": {str(VCPU): "CPU 1/KVM", str(SPARE): "CPU 0/KVM", str(HOG): "injector"},
              "irqs": {}, "functions": {}}  # fmt: skip
Integers = npt.NDArray[np.int64]


def host_hog(start: int, dur: int) -> list[Record]:
    """No record of the guest: its host has given the core to somebody else."""
    return []


@dataclass(frozen=True)
class Clock:
    offset_ns: int = -6_900_000_000_123
    drift: float = 2e-5

    def shows(self, host: npt.ArrayLike) -> Integers:
        ours = np.asarray(host, np.int64)
        ahead = self.offset_ns + np.rint(self.drift * (ours - START)).astype(np.int64)
        shown: Integers = ours + ahead
        return shown


def host_records(found: Simulated) -> list[Record]:
    """The guest's thread has the core of the host, but for what `host_hog` took."""
    records, at = [], START - 1_000_000
    taken = sorted((b.start, b.start + b.dur) for b in found.blocks if b.made is host_hog)
    for start, end in [*taken, (found.ended, found.ended)]:
        while at < start:  # a record tells at most four seconds
            until = min(start, at + SECOND)
            records.append(Record(at, until - at, TASK, VCPU, SERVED_BIT))
            at = until
        if end > start:
            records.append(Record(start, end - start, TASK, HOG, HOG))
        at = end
    return records


def write_guest_run(
    folder: Path,
    found: Simulated,
    clock: Clock | None = None,
    way_ns: Callable[[int], Integers] = lambda size: np.zeros(size, np.int64),
) -> Path:
    """A run folder with traces of the host and of the guest. Packets take `way_ns` more from the
    host's stamps to the guest's, and back.
    """
    clock = clock or Clock()
    mine = replace(found, records=host_records(found))
    served = {"by": "vcpu", "pids": [SPARE, VCPU], "cpus": [DUT]}
    write_run(folder, mine, served=served, names=HOST_NAMES)
    ids = np.arange(found.ingress.size)
    order = np.argsort(found.egress, kind="stable")
    came = clock.shows(found.ingress + IN_NS + way_ns(ids.size))
    left = clock.shows(found.egress - OUT_NS - way_ns(ids.size))
    write_stamps(folder / "guest-ingress.stamps", came, ids)
    write_stamps(folder / "guest-egress.stamps", left[order], ids[order])
    records = []
    for record in found.records:
        start, end = clock.shows([record.start, record.start + record.dur]).tolist()
        records.append(record._replace(start=start, dur=end - start, cpu=SEAT))
    (folder / "trace-guest.events").write_bytes(encode(records))
    first, last = clock.shows([START - 1_000_000, found.ended]).tolist()
    trace = {
        "schema": "tailtap.trace/1", "clock": "monotonic", "boot_id": "guest", "mode": "thin",
        "cpus": [SEAT], "started_ns": first, "ended_ns": last, "records": len(records), "lost": {},
        "missing": [], "substitutes": [], "steal": False, "floor_ns": 1000, "names": NAMES,
        "kernel": "6.1", "served": {"by": "task", "pids": [SERVER], "cpus": [SEAT]},
    }  # fmt: skip
    (folder / "trace-guest.json").write_text(json.dumps(trace))
    return folder
