"""The machine of a seed: a device whose core serves packets, and what else it has to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tests.simulation.draw import Draw
from tests.simulation.machine import (
    AWAY,
    INTERRUPT,
    NMI,
    SOFTIRQ,
    TASK,
    THREAD,
    Course,
    Integers,
    Job,
    Server,
    What,
    course,
)

SERVES, HOG, WORKER, LOCKER = 500, 600, 77, 601
FLUSH, VMSTAT, BARRIER = 0xFFFFFFFF81000000, 0xFFFFFFFF82000000, 0xFFFFFFFF83000000
CORE, NEIGHBOUR = 1, 0
SERVED_BIT, KERNEL_BIT = 1 << 48, 1 << 40
ASLEEP = What("waiting", "its thread slept", THREAD, 9, 1)
TOLD = What("function-call-ipi", "", INTERRUPT, 2, 3)
RECEIVES = What("device-interrupt", "eth0-rx-0", INTERRUPT, 1, 25)
NET_RX = What("foreign-net-rx", "", SOFTIRQ, 5, 3)
SERVERS = {
    "softirq": Server("softirq", What("serving", "", SOFTIRQ, 5, 3), ((TOLD, 400),)),
    "napi thread": Server(
        "task", What("serving", "", THREAD, 6, SERVES, SERVED_BIT | KERNEL_BIT),
        ((RECEIVES, 700),), ASLEEP,
    ),
    "polling": Server("poll", What("serving", "", THREAD, 6, SERVES, SERVED_BIT), (), ASLEEP),
    "user space": Server(
        "task", What("serving", "", THREAD, 6, SERVES, SERVED_BIT),
        ((RECEIVES, 700), (NET_RX, 1_100)), ASLEEP,
    ),
}  # fmt: skip
"""Forwarders, by how each is told of packets and has the core."""
TICK = What("timer", "local timer", INTERRUPT, 2, 1)
STEAL, SMI = What("steal", "", AWAY), What("gap", "", AWAY)
OTHERS: dict[str, tuple[What, float]] = {
    "hog": (What("task", "hog", TASK, 6, HOG, HOG), 0.5),
    "kworker": (
        What("kernel-thread", "kworker: vmstat_update", TASK, 6, WORKER, KERNEL_BIT | WORKER,
             (8, WORKER, VMSTAT)), 0.4,
    ),
    "locking task": (What("task", "locker", TASK, 6, LOCKER, LOCKER, locks=True), 0.3),
    "device": (What("device-interrupt", "virtio0-input.0", INTERRUPT, 1, 24), 0.3),
    "calls": (
        What("function-call-ipi", "ipi_mb", INTERRUPT, 2, 3, 0, (3, NEIGHBOUR, BARRIER)), 0.3,
    ),
    "flushes": (
        What("tlb-flush", "flush_tlb_func", INTERRUPT, 2, 3, 0, (3, NEIGHBOUR, FLUSH)), 0.3,
    ),
    "reschedules": (What("reschedule-ipi", "", INTERRUPT, 2, 2), 0.2),
    "rcu": (What("softirq", "RCU", SOFTIRQ, 5, 9), 0.3),
    "nmi": (What("nmi", "", NMI, 10), 0.2),
    "steal": (STEAL, 0.3),
}  # fmt: skip
"""What else the core may have to do, and in how many machines."""
NAMES = {
    "pids": {str(SERVES): "forwarder", str(HOG): "hog", str(WORKER): "kworker/1:2",
             str(LOCKER): "locker"},
    "irqs": {"24": "virtio0-input.0", "25": "eth0-rx-0"},
    "functions": {hex(FLUSH): "flush_tlb_func", hex(VMSTAT): "vmstat_update",
                  hex(BARRIER): "ipi_mb"},
}  # fmt: skip


@dataclass(frozen=True)
class Load:
    """Packets by when they come to a core and how long each takes there, in ns."""

    arrivals: Integers
    service: Integers
    gap_ns: int
    """Between two of them, mostly."""

    @property
    def until(self) -> int:
        return int(self.arrivals[-1]) + self.gap_ns


@dataclass(frozen=True)
class Device:
    """A core that served packets, and one beside it."""

    load: Load
    core: Course
    neighbour: Course
    began: int

    @cached_property
    def left(self) -> Integers:
        return np.array(self.core.left, np.int64)

    @property
    def ended(self) -> int:
        return max(self.core.end[-1], int(self.left.max()), self.load.until) + 10_000


def device(draw: Draw, load: Load, began: int) -> Device:
    """The device of a seed under a load, from a time on."""
    server = SERVERS[draw.choice("forwarder", list(SERVERS))]
    if not server.polls and draw.has("deep idle", 0.3):
        deep = draw.magnitude("deep idle exit", 3_000, 300_000)
        server = server._replace(
            idle_states=((0, 1_500), (draw.magnitude("deep idle from", 1, 20) * load.gap_ns, deep))
        )
    core = course(
        server, load.arrivals.tolist(), load.service.tolist(),
        [*ticks(draw, load, began), *others(draw, load, server)], began,
    )  # fmt: skip
    return Device(load, core, neighbour(draw, load, began), began)


def ticks(draw: Draw, load: Load, began: int) -> Iterator[Job]:
    """The timer's interrupts, which make few packets late, and at any rate."""
    period = draw.choice("tick", (1_000_000, 4_000_000, 10_000_000))
    dur = draw.magnitude("tick takes", 500, 8_000)
    most = 3_000
    first = began + draw.between("tick", 0, period)
    for at in range(first, min(load.until, first + most * period), period):
        yield Job(at, dur, TICK)


def others(draw: Draw, load: Load, server: Server) -> Iterator[Job]:
    """What takes the core from the server, some of it when a packet is there."""
    wanted = dict(OTHERS)
    if server.polls:
        wanted["smi"] = (SMI, 0.4)
    for name, (what, chance) in wanted.items():
        if not draw.has(name, chance):
            continue
        stream = draw.stream(name)
        number = draw.count(f"{name} number", 2, 60)
        usual = draw.magnitude(f"{name} dur", 2_000, 2_000_000)
        usual = min(usual, load.gap_ns * load.arrivals.size // (30 * number))
        if usual < 2_000:
            continue
        dur = stream.integers(usual, 2 * usual, number)
        start = stream.integers(load.arrivals[0], load.until, number)
        aimed = load.arrivals[stream.integers(0, load.arrivals.size, number)]
        aimed = aimed + stream.integers(-usual // 2, 2_000, number)
        start = np.where(stream.random(number) < 0.5, aimed, start)
        for at, length in zip(start.tolist(), dur.tolist(), strict=True):
            yield Job(at, length, what)
            if what is STEAL:  # the timer is due when the core is back
                yield Job(at, 1_500, TICK)


def neighbour(draw: Draw, load: Load, began: int) -> Course:
    """Another core, which makes nobody late whatever it does."""
    jobs = []
    if draw.has("busy neighbour", 0.5):
        stream = draw.stream("busy neighbour")
        what = OTHERS[draw.choice("neighbour", ["hog", "flushes", "device", "rcu"])][0]
        number = 200
        start = stream.integers(began, load.until, number)
        dur = stream.integers(5_000, 200_000, number)
        jobs = [Job(*times, what) for times in zip(start.tolist(), dur.tolist(), strict=True)]
    return course(SERVERS["user space"], [], [], jobs, began)


def served_by(server: Server) -> dict[str, object]:
    """By what packets are served, as `trace.json` says it."""
    pids = [] if server.by == "softirq" else [SERVES]
    vector = 3 if server.by == "softirq" else None
    return {"by": server.by, "vector": vector, "pids": pids, "cpus": [CORE]}
