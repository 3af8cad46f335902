"""Which of the causes of lateness the owner of a nanosecond belongs to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

from tailtap.records.knobs import CAUSES
from tailtap.records.trace import NET_RX, Task, group_name

By = Literal["softirq", "task", "poll", "vcpu", "several"]
NAMES = frozenset(cause.name for cause in CAUSES)
BY_EXCLUSION = ("own-work", "gap", "behind")
"""Causes that follow from stamps and the state of the server: no event could be shifted."""

_NOT_NOTIFIED = "its core was not notified"
_UNTIL_ENTERED = "until the IPI was entered"

UNSEEN, TASK, UNTOLD, STEAL = 0, 6, 253, 255
"""Kinds of owners that are no records; the others are those of a trace."""
KERNEL_THREAD, SERVED = 1, 2
FOREIGN = 1
"""A bit of a softirq: no packet of the run left during it."""
RAISER = 8
"""From this bit on, of a softirq: what raised it, its kind above its id; 0 where nobody says."""
ASLEEP = 1
"""A bit of an idle core: threads serve there, and softirqs on others."""
GUEST = 1 << 63
"""A bit of any owner: a guest's kernel says so."""
SENDER, SENDER_CPU = 1 << 62, 44
"""A bit of any owner: it held the CPU that tells others of packets, whose number stands from the
bit `SENDER_CPU` on."""
_OF_GENERATOR = "on the generator's CPU "
NOTHING, SERVING = 0, 1
"""The rows that every join has."""

_VECTORS = {
    1: ("timer", "local timer"),
    2: ("reschedule-ipi", ""),
    3: ("function-call-ipi", ""),
    4: ("function-call-ipi", ""),
    5: ("function-call-ipi", "irq_work"),
    6: ("device-interrupt", "thermal"),
    7: ("device-interrupt", "platform"),
    8: ("device-interrupt", "other vector"),
}
_SOFTIRQS = ("HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER",
             "RCU")  # fmt: skip
_FLUSHES = (
    "on a switch of tasks",
    "asked for by another core",
    "of this core",
    "of this process",
    "sent",
)
"""enum tlb_flush_reason of the kernel's include/linux/mm_types.h."""
_FIXED = {
    4: ("idle-exit", _UNTIL_ENTERED),
    7: ("idle-exit", "waking its thread"),
    10: ("nmi", ""),
    13: ("page-fault", ""),
    14: ("page-fault", "reclaim"),
    15: ("page-fault", "compaction"),
    19: ("throttled", ""),
    20: ("foreign-net-rx", ""),
    UNTOLD: ("waiting", _NOT_NOTIFIED),
    STEAL: ("steal", ""),
}


class Named(NamedTuple):
    """A row of the table of causes."""

    cause: str
    detail: str

    def __str__(self) -> str:
        """As people read it."""
        return f"{self.cause} ({self.detail})" if self.detail else self.cause

    @property
    def short(self) -> str:
        """What it is called where its kind is known."""
        return self.detail or self.cause

    @property
    def is_untold(self) -> bool:
        """Whether packets waited of which the server was not notified."""
        return self.detail.endswith(_NOT_NOTIFIED)

    @property
    def by_exclusion(self) -> bool:
        """Whether it follows from stamps and the state of the server."""
        return self.is_untold or self.cause in BY_EXCLUSION


@dataclass(frozen=True)
class Served:
    """Who serves packets, in a node of the device or, by ``several``, in nodes that differ."""

    by: By
    vector: int = NET_RX
    pids: frozenset[int] = frozenset()
    cpus: tuple[int, ...] = ()
    softirq_cpus: tuple[int, ...] = ()
    """Of these, where softirqs serve."""
    thread_cpus: tuple[int, ...] = ()
    """Of these, where threads serve, alone or as well."""

    @classmethod
    def one(
        cls, by: By, *, vector: int = NET_RX, pids: Iterable[int] = (), cpus: Iterable[int] = ()
    ) -> Served:
        """One kind of server."""
        on = tuple(cpus)
        softirq, threads = (on, ()) if by == "softirq" else ((), on)
        return cls(by, vector, frozenset(pids), on, softirq, threads)

    @classmethod
    def together(cls, servers: Sequence[Served]) -> Served:
        """All of several."""

        def union(name: str) -> tuple[int, ...]:
            return tuple(sorted({cpu for one in servers for cpu in getattr(one, name)}))

        kinds = {one.by for one in servers}
        return cls(
            servers[0].by if len(kinds) == 1 else "several",
            servers[0].vector,
            frozenset(pid for one in servers for pid in one.pids),
            union("cpus"),
            union("softirq_cpus"),
            union("thread_cpus"),
        )

    @property
    def by_softirq(self) -> bool:
        """Whether softirqs serve on some core."""
        return self.by in ("softirq", "several")

    def serving(
        self, leaving: Sequence[Path]
    ) -> tuple[int, Sequence[int], Sequence[int], Sequence[Path]] | None:
        """`serving` of `Cores.read`, given the stamp files of the tap points behind what serves."""
        if not self.by_softirq:
            return None
        return self.vector, self.softirq_cpus, self.thread_cpus, leaving


@dataclass(frozen=True)
class Names:
    """What `trace.json` calls processes, interrupts and functions."""

    pids: Mapping[int, str] = field(default_factory=dict)
    irqs: Mapping[int, str] = field(default_factory=dict)
    functions: Mapping[int, str] = field(default_factory=dict)
    tasks: Mapping[int, Task] = field(default_factory=dict)

    def thread(self, pid: int) -> str:
        """What a thread is called: two of one name that differ in policy or group are two."""
        return self._threads.get(pid) or f"pid {pid}"

    @cached_property
    def _threads(self) -> Mapping[int, str]:
        kinds: dict[tuple[str, str], set[str]] = defaultdict(set)
        paths: dict[str, set[str]] = defaultdict(set)
        both = self.tasks.keys() & self.pids.keys()
        known = [(pid, self.pids[pid], self.tasks[pid]) for pid in sorted(both)]
        for _, name, task in known:
            if task.cgroup:
                kinds[name, task.scheduling].add(task.cgroup)
                paths[group_name(task.cgroup)].add(task.cgroup)
        found = dict(self.pids)
        for pid, name, task in known:
            # What ended before anybody looked is one with the others, if these are of one group.
            alike = kinds[name, task.scheduling] if task.cgroup is None else {task.cgroup}
            path = next(iter(alike)) if len(alike) == 1 else ""
            group = group_name(path)
            found[pid] = task.words(name, group if len(paths[group]) == 1 else path)
        return found

    def function(self, address: int) -> str:
        """A function's name, or its address."""
        return self.functions.get(address) or (f"{address:#x}" if address else "")


class Kernel(NamedTuple):
    """A kernel that was traced: what it calls things, and by what it serves packets."""

    names: Names
    served: Served


def name(owner: tuple[int, int, int], names: Names, served: Served) -> Named | None:
    """What has the time of an owner (kind, id, more): a row, or None when nobody knows.

    The server's own time is the row called ``serving``.
    """
    kind, id, more = owner
    if kind in _FIXED:
        return Named(*_FIXED[kind])
    match kind:
        case 1:
            return Named("device-interrupt", names.irqs.get(id) or f"irq {id}")
        case 2:
            return Named(*_VECTORS.get(id, _VECTORS[8]))
        case 3:
            function = names.function(id)
            flush = "flush_tlb" in function
            return Named("tlb-flush" if flush else "function-call-ipi", function)
        case 5:
            return _softirq(id, more, served)
        case 6:  # TASK
            if _serves(id, more, served):
                return SERVING_NAME
            if more & KERNEL_THREAD:
                return Named("kernel-thread", names.pids.get(id) or f"pid {id}")
            return Named("task", names.thread(id))
        case 8:
            return Named("kernel-thread", f"kworker: {names.function(id)}")
        case 9:
            told = served.by_softirq and not more & ASLEEP
            return Named("idle-exit", "") if told else Named("waiting", "its thread slept")
        case 11:
            return Named("timer", names.function(id))
        case 12:
            return Named("tlb-flush", _FLUSHES[id] if id < len(_FLUSHES) else f"reason {id}")
        case 17:
            return Named("own-work", f"exit {id}")
    return None


SERVING_NAME = Named("serving", "")


def _softirq(vector: int, more: int, served: Served) -> Named:
    if served.by_softirq and vector == served.vector and not more & FOREIGN:
        return SERVING_NAME
    if vector == NET_RX:
        return Named("foreign-net-rx", "")
    return Named("softirq", _SOFTIRQS[vector] if vector < len(_SOFTIRQS) else f"{vector}")


def raiser(more: int, names: Names) -> Named | None:
    """What raised a softirq, by the bits of its owner: an interrupt, a softirq or a task."""
    kind, id = (more & ((1 << SENDER_CPU) - 1)) >> RAISER + 28, more >> RAISER & (1 << 28) - 1
    if kind == TASK and not id:
        return Named("idle", "")
    return name((kind, id, 0), names, _NOBODY_SERVES)


def _serves(pid: int, more: int, served: Served) -> bool:
    return served.by != "softirq" and (pid in served.pids or bool(more & SERVED))


def _of_sender(owner: tuple[int, int, int], names: Names) -> Named | None:
    """What held the CPU that hands packets over, before the server's core was told of them."""
    kind, id, more = owner
    cpu = (more & ~SENDER) >> SENDER_CPU
    found = name((kind, id, more & ((1 << SENDER_CPU) - 1)), names, _NOBODY_SERVES)
    if found is None:
        return None
    where = f"{_OF_GENERATOR}{cpu}"
    return Named(found.cause, f"{found.detail}, {where}" if found.detail else where)


def is_of_generator(name: Named) -> bool:
    """Whether a row is of the CPU that hands packets over."""
    return _OF_GENERATOR in name.detail


def own_detail(name: Named) -> str:
    """What a row says besides that it is of the CPU that hands packets over."""
    return name.detail.partition(_OF_GENERATOR)[0].removesuffix(", ")


_NOBODY_SERVES = Served("task")


@dataclass(frozen=True)
class Rows:
    """The rows of a run's table of causes, and the row of each owner."""

    names: tuple[Named, ...]
    """By row; the first two are nobody and the server."""
    of_owners: tuple[int, ...]

    @property
    def causes(self) -> list[int]:
        """The number of each row's cause."""
        numbers: dict[str, int] = {}
        return [numbers.setdefault(name.cause, len(numbers)) for name in self.names]

    def tested(self) -> list[int]:
        """The rows that can be held against chance."""
        rows = range(SERVING + 1, len(self.names))
        return [row for row in rows if not self.names[row].is_untold]


def sort(
    owners: Sequence[tuple[int, int, int]],
    names: Names,
    served: Served,
    guest: Kernel | None = None,
) -> Rows:
    """The owners of a trace as rows, in the order in which they were met.

    What keeps a virtual CPU from its core is the host's, and says so; what a `guest` does that was
    traced as well is the guest's.
    """
    rows = {Named("unexplained", ""): NOTHING, SERVING_NAME: SERVING}
    found = []
    for owner in owners:
        kind, id, more = owner
        if more & SENDER and not more & GUEST:
            named = _of_sender(owner, names)
        elif more & GUEST and guest is not None:
            named = _whose("guest", name((kind, id, more ^ GUEST), *guest))
        elif served.by == "vcpu" and guest is not None and kind == TASK:
            # Threads of virtual CPUs that are no seat: the guest's trace does not tell of them.
            nobody = replace(served, pids=frozenset())
            named = _whose("host", name((kind, id, more & ~SERVED), names, nobody))
        else:
            named = name(owner, names, served)
            named = _whose("host", named) if served.by == "vcpu" else named
        found.append(NOTHING if named is None else rows.setdefault(named, len(rows)))
    return Rows(tuple(rows), tuple(found))


WHENEVER_ASLEEP = ("task", "kernel-thread", "waiting")
"""Causes that have the core of a thread while it sleeps, and keep it from nothing then."""


def holds(name: Named, servers: Sequence[Served], *, guest: bool = False) -> bool:
    """Whether a packet waited for its core because a row had it: a fact, read off one clock.

    A softirq preempts tasks as soon as the core knows of packets, and who polls never sleeps: what
    the trace gives to others then, they had. Of a thread that serves, and of the CPU of a `guest`,
    it is not known whether it wanted the core. A core that idles may not have been told.
    """
    if is_of_generator(name):
        return True  # until it ended, nobody could tell the server
    if name.cause == "idle-exit":
        return name.detail.endswith(_UNTIL_ENTERED)
    if name.cause in WHENEVER_ASLEEP:
        return not guest and all(one.by in ("softirq", "poll") for one in servers)
    return name.cause not in (*BY_EXCLUSION, "link", "mixed", "unexplained", "serving")


def is_of(machine: str, name: Named) -> bool:
    """Whether a row is one of the ``host``, or of the ``guest``."""
    return name.detail == machine or name.detail.startswith(f"{machine}: ")


def _whose(machine: str, named: Named | None) -> Named | None:
    if named is None or named == SERVING_NAME:
        return named
    return Named(named.cause, f"{machine}: {named.detail}" if named.detail else machine)
