"""Runs with a trace whose truth is known: a thread that serves on one core, which others take."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from made_records import rewrite
from stamps import write_sides, write_stamps

from tailtap.analysis import evaluation
from tailtap.analysis.causes.taxonomy import By, Names, Served
from tailtap.analysis.causes.trace import Trace
from tailtap.records.trace import TraceRecord
from tests.simulation.device import (
    ASLEEP,
    CORE,
    NAMES,
    OTHERS,
    SERVED_BIT,
    SERVES,
    TICK,
    Device,
    Load,
)
from tests.simulation.machine import NMI, THREAD, Integers, Job, Server, What, course
from tests.simulation.records import (
    LAYOUT,
    RUNNABLE,
    WAKEUP,
    Records,
    in_order,
    of_course,
    packed,
)
from tests.simulation.tracer import Told
from tests.simulation.traffic import START_NS

START, SECOND = START_NS, 1_000_000_000
BEFORE_NS, SERVICE_NS = 1_000_000, 2_000
SERVER = Server("task", What("serving", "", THREAD, 6, SERVES, SERVED_BIT), (), ASLEEP)
HOG, KWORKER, CALL, FLUSH = (OTHERS[name][0] for name in ("hog", "kworker", "calls", "flushes"))
STEAL = What("steal", "", NMI)
"""Also of a core that idles, unlike that of a seed."""


class Record(NamedTuple):
    """A record of a tracer."""

    start: int
    dur: int
    kind: int
    id: int = 0
    aux: int = 0
    cpu: int = CORE
    steal: int = 0
    flags: int = 0


def as_rows(records: Sequence[Record]) -> Records:
    """The same as rows of a file."""
    found = np.zeros(len(records), LAYOUT)
    for name in Record._fields:
        found[name] = [getattr(record, name) for record in records]
    return found


def encode(records: Sequence[Record]) -> bytes:
    """A file of records, each core's in the order in which they ended."""
    return packed(in_order(as_rows(records)))


def ticks(seconds: float, dur: int = 3_000) -> list[Job]:
    """The timer's interrupts, 250 a second."""
    return [Job(START + at * 4_000_000 + 777, dur, TICK) for at in range(int(seconds * 250))]


def arrivals(rate: int, seconds: float, random: np.random.Generator) -> Integers:
    """Packets at a constant rate with a little jitter."""
    count = int(rate * seconds)
    return START + (np.arange(count) * (SECOND / rate)).astype(np.int64) + random.integers(
        0, 200, count)  # fmt: skip


def random_jobs(
    what: What, count: int, dur: tuple[int, int], seconds: float, random: np.random.Generator
) -> list[Job]:
    """So many, so long, at any time."""
    starts = START + np.sort(random.integers(0, int(seconds * SECOND), count))
    durations = random.integers(*dur, count)
    return [Job(*times, what) for times in zip(starts.tolist(), durations.tolist(), strict=True)]


def traffic(
    seed: int,
    seconds: float,
    *kinds: tuple[What, int, tuple[int, int]],
    rate: int = 20_000,
    more: Sequence[Job] = (),
) -> Told:
    """Packets, and jobs of each kind: so many, so long; and more of them."""
    random = np.random.default_rng(seed)
    jobs = [
        job for what, count, dur in kinds for job in random_jobs(what, count, dur, seconds, random)
    ]
    return simulate(arrivals(rate, seconds, random), [*jobs, *more], random)


def simulate(ingress: Integers, jobs: Sequence[Job], random: np.random.Generator) -> Told:
    """Packets that are served in turn, on a core that also has `jobs`.

    The trace does not tell how long its thread waited for the core.
    """
    service = SERVICE_NS + random.integers(0, 300, ingress.size)
    began = START - BEFORE_NS
    due = [Job(job.start, 300, TICK) for job in jobs if job.what is STEAL]  # as it is back
    core = course(SERVER, ingress.tolist(), service.tolist(), [*jobs, *due], began)
    load = Load(ingress, service, SECOND // 10_000)
    idle = course(SERVER, [], [], [], began)
    made = Device(load, ingress, np.zeros_like(ingress), core, idle, None, began)
    records = of_course(core, CORE)
    records = records[~np.isin(records["kind"], (WAKEUP, RUNNABLE))]
    return Told(made, records, began, made.ended)


def stamped(told: Told, *, earlier_ns: int = 0, later_ns: int = 0) -> Told:
    """The same packets, with stamps so much earlier before the device, or later behind it."""
    made = replace(told.made, sent=told.made.sent - earlier_ns, held=told.made.held + later_ns)
    return replace(told, made=made, ended=made.ended)


def write_record(folder: Path) -> None:
    """The record of a run that is done."""
    run = {
        "schema": "tailtap.run/1", "number": 1, "slug": folder.name, "repeat": 1, "status": "done",
        "error": None, "name": "traced", "variables": {}, "warnings": [], "generator": None,
        "taps": None, "parameters": {"dut": {"platform": "bare-metal"}, "traffic": {}},
        "environment": {"boot_id": "b"}, "started": "2026-11-01T14:00:00+00:00", "finished": None,
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(run))


def write_run(folder: Path, told: Told, **changes: Any) -> Path:
    """A run folder with stamps, evaluation and trace; `changes` are keys of trace.json."""
    folder.mkdir(parents=True)
    write_record(folder)
    write_sides(folder, told.made.sent, told.made.left)
    evaluation.evaluate(folder / "ingress.stamps", folder / "egress.stamps").write(
        folder / "evaluation"
    )
    told.write(folder)
    rewrite(folder / "trace.json", **changes)
    return folder


def write_line(
    folder: Path, told: Told, between: Integers, served: Sequence[Any], *, hops: bool = True,
    **changes: Any,
) -> Path:  # fmt: skip
    """A run folder of two nodes that are `served` so, with a tap before each and one behind, given
    when packets passed `between` them; without the `hops` nobody says what that tap is.
    """
    write_run(folder, told, served=list(served), **changes)
    write_stamps(folder / "between.stamps", between, np.arange(between.size))
    if hops:
        ends = zip(("ingress", "between", "egress"), (*served, {}), strict=True)
        points = [{"name": name, "port": "", "file": f"{name}.stamps", "before": node.get("node")}
                  for name, node in ends]  # fmt: skip
        rewrite(
            folder / "run.json", instruments={"taps": {"facts": [], "files": [], "points": points}}
        )
    return folder


def trace_of(folder: Path, records: Sequence[Record], by: By = "task", **fields: Any) -> Trace:
    """A trace of the serving core alone; `fields` are those of its record."""
    (folder / "trace.events").write_bytes(encode(records))
    names = Names(
        {int(pid): name for pid, name in NAMES["pids"].items()},
        {int(irq): name for irq, name in NAMES["irqs"].items()},
        {int(address, 16): name for address, name in NAMES["functions"].items()},
    )
    record = TraceRecord(
        cpus=[CORE], started_ns=START, ended_ns=START + SECOND, served=None, **fields
    )
    return Trace(folder / "trace.events", record, Served.one(by, pids=[SERVES], cpus=[CORE]), names)


def write_two_causes(folder: Path) -> Path:
    """An experiment folder with one traced run; returns the run's folder."""
    found = traffic(
        5, 2.0, (HOG, 14, (1_200_000, 1_500_000)), (KWORKER, 40, (300_000, 500_000)), rate=10_000
    )  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "experiment.yaml").write_text("name: told\n")
    return write_run(folder / "runs" / "001-told", found)
