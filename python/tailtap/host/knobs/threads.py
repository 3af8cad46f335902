"""Threads of the kernel, and what it does on cores that nobody asked it to work on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tailtap.host.changes.kernel_values import Form, Wish
from tailtap.host.changes.resource import Resource
from tailtap.host.cpu.threads import ThreadAffinity, ThreadPriority, allowed
from tailtap.host.facts import machine as facts
from tailtap.host.knobs.knob import Knob, fixed
from tailtap.host.knobs.purpose import Purpose
from tailtap.host.knobs.tree import Absent, Tree

KTHREAD = 0x00200000
NO_SETAFFINITY = 0x04000000
"""PF_KTHREAD and PF_NO_SETAFFINITY of include/linux/sched.h."""
JITTER = "Documentation/admin-guide/kernel-per-CPU-kthreads.rst"
_RCU = re.compile(r"rcuo[a-z]*/\d+")
_OWN_RULES = re.compile(r"(irq|napi)/.*|kthreadd")
"""Threads that have to run where interrupts and queues are, and the one that makes all others."""
_SOFTIRQ = re.compile(r"(ksoftirqd|ktimers|rcuc)/(\d+)")
_FIFO = 1
"""SCHED_FIFO of include/uapi/linux/sched.h."""


@dataclass(frozen=True)
class Thread:
    """What the knobs need of a kernel thread."""

    number: str
    name: str
    movable: bool
    policy: int
    priority: int
    """Of real-time policies."""
    cpus: str


def threads(tree: Tree) -> Iterator[Thread]:
    """The kernel's threads; one that ends meanwhile may be missing."""
    for path in tree.glob("/proc/[0-9]*/stat"):
        head, _, tail = (tree.look(path) or "").rpartition(")")
        fields = tail.split()
        if len(fields) < 39 or not int(fields[6]) & KTHREAD:
            continue
        number, _, name = head.partition(" (")
        cpus = allowed(tree.look(f"/proc/{number}/status") or "")
        if cpus is not None:
            free = not int(fields[6]) & NO_SETAFFINITY
            yield Thread(number, name, free, int(fields[38]), int(fields[37]), cpus)


@dataclass(frozen=True)
class Affinity:
    """Which CPUs those threads of the kernel may run on that can be moved."""

    rcu: bool
    """Those that run callbacks of RCU, or all others."""
    form: Form = "cpus"
    settable: bool = True
    optional: bool = True
    """Threads that the kernel makes after the others were moved are where it put them."""

    @property
    def place(self) -> str:
        names = "rcuo threads" if self.rcu else "other threads of the kernel"
        return f"Cpus_allowed_list of {names} in /proc/*/status"

    def read(self, tree: Tree, purpose: Purpose) -> Mapping[str, str]:
        found = {f"{one.name} ({one.number})": one.cpus for one in self._mine(tree)}
        if not found:
            raise Absent("no core has its callbacks offloaded (rcu_nocbs)" if self.rcu
                         else "no thread of the kernel can be seen here")  # fmt: skip
        return found

    def changes(self, tree: Tree, purpose: Purpose, value: str) -> Sequence[Resource]:
        if not tree.is_live:
            raise Absent("threads of a recorded machine cannot be moved")
        wish = Wish(value, "within")
        away = {
            one.number: one.name for one in self._mine(tree) if not wish.holds(one.cpus, self.form)
        }
        return [ThreadAffinity(away, value)]

    def _mine(self, tree: Tree) -> Iterator[Thread]:
        for one in threads(tree):
            is_rcu = _RCU.fullmatch(one.name) is not None
            if one.movable and is_rcu == self.rcu and not _OWN_RULES.fullmatch(one.name):
                yield one


@dataclass(frozen=True)
class Priority:
    """The real-time priority of those threads of the device's cores that do softirqs' work."""

    form: Form = "number"
    settable: bool = True
    place: str = "real-time priority of ksoftirqd, ktimers and rcuc in /proc/*/stat"

    def read(self, tree: Tree, purpose: Purpose) -> Mapping[str, str]:
        found = {one.name: _priority(one) for one in self._mine(tree, purpose)}
        if not found:
            raise Absent("no thread of softirqs can be seen here")
        return found

    def changes(self, tree: Tree, purpose: Purpose, value: str) -> Sequence[Resource]:
        if not tree.is_live:
            raise Absent("threads of a recorded machine cannot be changed")
        wish = Wish(value, "at-least")
        low = {one.number: one.name for one in self._mine(tree, purpose)
               if not wish.holds(_priority(one), self.form)}  # fmt: skip
        return [ThreadPriority(low, int(value))]

    def _mine(self, tree: Tree, purpose: Purpose) -> Iterator[Thread]:
        if not facts.is_realtime(tree.root):
            raise Absent("softirqs run in threads only on kernels with PREEMPT_RT")
        for one in threads(tree):
            if (match := _SOFTIRQ.fullmatch(one.name)) and int(match[2]) in purpose.cpus:
                yield one


def _priority(thread: Thread) -> str:
    return str(thread.priority if thread.policy == _FIFO else 0)


row = partial(Knob, group="scheduling")
ROWS = (
    row(
        "rcu-threads",
        Affinity(rcu=True),
        lambda purpose, _tree: Wish(purpose.others, "within"),
        "Offloaded callbacks of RCU run in threads, which the scheduler may put on any core.",
        f"{JITTER}: rcuo; packet-processing-in-virtualized-environments, section 3",
        removes=("kernel-thread",),
    ),
    row(
        "kernel-threads",
        Affinity(rcu=False),
        lambda purpose, _tree: Wish(purpose.others, "within"),
        "Threads that reclaim memory, write files or clean up run on any core.",
        f"{JITTER}: bind others to a housekeeping CPU; Documentation/admin-guide/cpu-isolation.rst",
        removes=("kernel-thread", "waiting"),
    ),
    row(
        "softirq-priority",
        Priority(),
        fixed(Wish("11", "at-least")),
        "On real-time kernels packets and timers wait for a thread that any other task delays.",
        "OpenShift node tuning operator: openshift-node-performance, group.ksoftirqd, group.rcuc",
        removes=("waiting", "softirq"),
        risk=2,
        recommended=False,
    ),
)
