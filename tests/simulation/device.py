"""The machine of a seed: a device whose core serves packets, and what else it has to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tests.simulation.draw import Draw
from tests.simulation.machine import (
    AWAY,
    INTERRUPT,
    NMI,
    QUOTA,
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

SEND_NS, TELL_NS = 600, 700
"""What the generator takes to send a packet, and then to tell the device's core of it."""
AFTER_NS = 100_000
"""So long the core is looked at behind the last packet."""
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
    "quota": (What("throttled", "", QUOTA, 9, 1), 0.4),
}  # fmt: skip
"""What else the core may have to do, and in how many machines."""
RAISERS = {"nobody": 0, "local timer": 2 << 28 | 1, "virtio0-input.0": 1 << 28 | 24,
           "kworker/1:2": 6 << 28 | WORKER}  # fmt: skip
"""What may have raised a softirq, as its record says it: nobody in traces of earlier versions."""
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
    """A core that served packets, one beside it, and the one that sent them."""

    load: Load
    """As the core was told of packets."""
    sent: Integers
    """When each passed the point before the device."""
    held: Integers
    """How long each was held behind the core, where nothing tells of it; in ns."""
    core: Course
    neighbour: Course
    sender: Course | None
    """None: it told the core of each packet at once."""
    began: int

    @cached_property
    def left(self) -> Integers:
        return np.array(self.core.left, np.int64) + self.held

    @property
    def ended(self) -> int:
        return max(self.core.end[-1], int(self.left.max()), self.load.until) + 10_000


def device(
    draw: Draw, load: Load, began: int, wanted: Mapping[str, tuple[What, float]] = OTHERS
) -> Device:
    """The device of a seed under a load, from a time on, whose core may have `wanted` to do."""
    server = SERVERS[draw.choice("forwarder", list(SERVERS))]
    if not server.polls and draw.has("deep idle", 0.3):
        deep = draw.magnitude("deep idle exit", 3_000, 300_000)
        server = server._replace(
            idle_states=((0, 1_500), (draw.magnitude("deep idle from", 1, 20) * load.gap_ns, deep))
        )
    sent, sender = load.arrivals, None
    if draw.has("generator is held", 0.2):
        sender = generator(draw, load, began)
        both = np.array(sender.left, np.int64)
        sent, load = both[0::2], replace(load, arrivals=both[1::2])
    core = course(
        server, load.arrivals.tolist(), load.service.tolist(),
        [*ticks(draw, load, began), *others(draw, load, server, wanted)], began,
    )  # fmt: skip
    held = np.zeros(sent.size, np.int64)
    if server.by != "softirq" and draw.has("held elsewhere", 0.1):
        stream = draw.stream("held elsewhere")
        held += (stream.random(sent.size) < 0.01) * stream.integers(10_000, 50_000, sent.size)
    return Device(load, sent, held, core, neighbour(draw, load, began), sender, began)


def generator(draw: Draw, load: Load, began: int) -> Course:
    """What the generator's core does: it sends each packet, and then tells the device's core."""
    works = min(SEND_NS, load.gap_ns // 4), min(TELL_NS, load.gap_ns // 4)
    jobs: list[Job] = []
    for name in ("hog", "kworker", "device", "steal"):
        if draw.has(f"{name} of the generator", 0.4):
            jobs += some(draw, f"{name} of the generator", OTHERS[name][0], load, 6_000)
    return course(
        SERVERS["polling"], np.repeat(load.arrivals, 2).tolist(),
        np.tile(works, load.arrivals.size).tolist(), jobs, began,
    )  # fmt: skip


def ticks(draw: Draw, load: Load, began: int) -> Iterator[Job]:
    """The timer's interrupts, which make few packets late, and at any rate."""
    period = draw.choice("tick", (1_000_000, 4_000_000, 10_000_000))
    dur = draw.magnitude("tick takes", 500, 8_000)
    most = 3_000
    first = began + draw.between("tick", 0, period)
    for at in range(first, min(load.until, first + most * period), period):
        yield Job(at, dur, TICK)
    yield Job(load.until + AFTER_NS, dur, TICK)


def others(
    draw: Draw, load: Load, server: Server, wanted: Mapping[str, tuple[What, float]]
) -> Iterator[Job]:
    """What takes the core from the server, some of it when a packet is there."""
    if server.polls:
        wanted = {**wanted, "smi": (SMI, 0.4)}
    for name, (what, chance) in wanted.items():
        if what.level == QUOTA and server.what.aux != SERVED_BIT:
            continue  # the kernel's own threads have no quota
        if not draw.has(name, chance):
            continue
        raised = draw.choice("raised by", list(RAISERS)) if what.level == SOFTIRQ else ""
        aux = RAISERS[raised] << 32 if raised else what.aux
        for job in some(draw, name, what._replace(aux=aux), load, 2_000):
            yield job
            if what is STEAL:  # the timer is due when the core is back
                yield Job(job.start, 1_500, TICK)


def some(draw: Draw, name: str, what: What, load: Load, least_ns: int) -> Iterator[Job]:
    """Jobs at any time, half of them when a packet is there."""
    stream = draw.stream(name)
    number = draw.count(f"{name} number", 2, 60)
    usual = draw.magnitude(f"{name} dur", least_ns, 2_000_000)
    usual = min(usual, load.gap_ns * load.arrivals.size // (30 * number))
    if usual < least_ns:
        return
    dur = stream.integers(usual, 2 * usual, number)
    start = stream.integers(load.arrivals[0], load.until, number)
    aimed = load.arrivals[stream.integers(0, load.arrivals.size, number)]
    aimed = aimed + stream.integers(-usual // 2, 1_200, number)
    start = np.where(stream.random(number) < 0.5, aimed, start)
    for at, length in zip(start.tolist(), dur.tolist(), strict=True):
        yield Job(at, length, what)


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
