"""Runs in a virtual machine whose truth is known: what the guest did, and what its host did to it.

The server of `traced.simulate` is a task of the guest. Jobs of `HOST_HOG` are the host's: another
task has the core of the guest's only serving CPU, and the guest does not see it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from stamps import write_stamps
from traced import HOG, write_run

from tests.simulation.clocks import Clock
from tests.simulation.device import CORE, NAMES, SERVED_BIT, TICK, served_by
from tests.simulation.machine import NMI, TASK, THREAD, Job, Server, What, course
from tests.simulation.records import Records, ends, of_course, packed
from tests.simulation.tracer import Told
from tests.simulation.truth import rows_of

VCPU, SPARE = 901, 900
"""Threads of the host: the guest's CPU 1, which serves, and its CPU 0."""
SEAT = 1
IN_NS, OUT_NS = 800, 500
"""What the quickest packets take from the host's stamp to the guest's, and back."""
HOST_NAMES = {"pids": {str(VCPU): "CPU 1/KVM", str(SPARE): "CPU 0/KVM", str(HOG.id): "injector"},
              "irqs": {}, "functions": {}}  # fmt: skip
HOST_HOG = What("task", "host: injector", NMI)
"""As the guest has it: its time is gone, and no record tells of that."""
INJECTOR = What("task", "injector", TASK, 6, HOG.id, HOG.id)
"""The same as its host has it."""
SEAT_THREAD = Server("poll", What("serving", "", THREAD, 6, VCPU, SERVED_BIT))


CLOCK = Clock(-900_000_000_123, 2e-5)
"""That of the guest, by its host's."""


def host_records(told: Told) -> Records:
    """The guest's thread has the core of the host, but for what `HOST_HOG` took."""
    start, end = rows_of(told.made.core).get(HOST_HOG.row, (told.made.sent[:0],) * 2)
    jobs = [Job(*job, INJECTOR) for job in zip(start.tolist(), (end - start).tolist(), strict=True)]
    jobs.append(Job(told.ended, 1, TICK))
    return of_course(course(SEAT_THREAD, [], [], jobs, told.began), CORE)


def write_guest_run(folder: Path, found: Told) -> Path:
    """A run folder with traces of the host and of the guest."""
    served = {"by": "vcpu", "pids": [SPARE, VCPU], "cpus": [CORE]}
    mine = replace(found, records=host_records(found))
    write_run(folder, mine, served=served, names=HOST_NAMES, cpus=[CORE])
    sent, left = found.made.sent, found.made.left
    ids = np.arange(sent.size)
    order = np.argsort(left, kind="stable")
    came = CLOCK.shows(sent + IN_NS)
    gone = CLOCK.shows(left - OUT_NS)
    write_stamps(folder / "guest-ingress.stamps", came, ids)
    write_stamps(folder / "guest-egress.stamps", gone[order], ids[order])
    records = found.records.copy()
    start, end = CLOCK.shows(records["start"].astype(np.int64)), CLOCK.shows(ends(records))
    records["start"], records["dur"], records["cpu"] = start, end - start, SEAT
    (folder / "trace-guest.events").write_bytes(packed(records))
    first, last = CLOCK.shows(np.array([found.began, found.ended])).tolist()
    trace = {
        "schema": "tailtap.trace/1", "clock": "monotonic", "boot_id": "guest", "mode": "thin",
        "cpus": [SEAT], "started_ns": first, "ended_ns": last, "records": len(records), "lost": {},
        "missing": [], "substitutes": [], "steal": False, "floor_ns": 1000, "names": NAMES,
        "kernel": "6.1", "served": {**served_by(found.made.core.server), "cpus": [SEAT]},
    }  # fmt: skip
    (folder / "trace-guest.json").write_text(json.dumps(trace))
    return folder
