"""How the scheduler shares cores, and what runs on them.

These are control groups of other programs, and threads of the kernel. The group that this process
is in is left as it is: what it starts has to reach those cores.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tailtap.base.proc import ALLOWED, stats, status
from tailtap.host.changes.journal import is_ours
from tailtap.host.changes.kernel_values import Wish
from tailtap.host.changes.resource import Resource
from tailtap.host.changes.systemd import RUNNING, SliceCpus
from tailtap.host.containers.cgroups import having
from tailtap.host.cpu.threads import ThreadAffinity, ThreadPriority
from tailtap.host.facts import machine as facts
from tailtap.host.knobs.knob import Files, Place, fixed, known, others, written
from tailtap.host.knobs.tree import Absent, Purpose, Tree, Unreadable

SERVERS = "/sys/kernel/debug/sched/fair_server"


def _unthrottled(_purpose: Purpose, tree: Tree) -> str:
    if tree.exists(SERVERS) and not tree.config("RT_GROUP_SCHED"):
        raise Absent("this kernel keeps time for others by its fair server (fair-server) instead")
    return "-1"


PREEMPTION = Files("/sys/kernel/debug/sched/preempt", "choice")


def _preemption(tree: Tree, purpose: Purpose) -> Mapping[str, str]:
    """The preemption model, by the kernel's switch, or by its log where debugfs is closed."""
    try:
        return PREEMPTION.read(tree, purpose)
    except (Absent, Unreadable):
        model = _first_model(tree)
        if model is None:
            raise
        return {"Dynamic Preempt in the kernel's log": model}


def _first_model(tree: Tree) -> str | None:
    """What the kernel's log says that it began with; None without such a line."""
    try:
        found = (re.search(r"Dynamic Preempt: (\w+)", line) for line in tree.messages())
        return next((match[1] for match in found if match), None)
    except Unreadable:
        return None


row = partial(known, group="scheduling")

UNITS = ("system.slice", "user.slice", "init.scope")
"""Where systemd puts services, people, and itself. Slices of machines are not touched: they have
the device where it is a virtual machine or a container.
"""

_CGROUPS = "Documentation/admin-guide/cgroup-v2.rst: cpuset.cpus"


def _top(tree: Tree, version: int) -> str:
    found = having("cpuset", tree.root)
    if found is None or found.version != version:
        raise Absent(f"control groups of version {version} have no CPUs here")
    return f"/{found.path.relative_to(tree.root)}"


def _own(tree: Tree, version: int) -> str:
    """The group of this process, from the root of a hierarchy; proc_pid_cgroup(5)."""
    for line in (tree.look("/proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if (version == 2 and not controllers) or (version == 1 and controllers == "cpuset"):
            return path
    return "/"


def partitioned(tree: Tree) -> set[int]:
    """The CPUs that groups of version 2 keep out of load balancing while the machine runs.

    The root says so since Linux 6.7, and before that only each partition that is valid.
    """
    told = "/sys/fs/cgroup/cpuset.cpus.isolated"
    if tree.exists(told):
        return set(tree.cpus(told))
    return {
        cpu
        for path in tree.glob("/sys/fs/cgroup/**/cpuset.cpus.partition")
        if tree.look(path) == "isolated"
        for cpu in tree.cpus(path.replace("cpus.partition", "cpus.effective"))
    }


def _slices(tree: Tree, _purpose: Purpose) -> Mapping[str, str]:
    """The CPUs of systemd's units, in the hierarchy of version 2."""
    if not tree.exists(RUNNING):
        raise Absent("systemd does not run here")
    top = _top(tree, 2)
    online = tree.text("/sys/devices/system/cpu/online")
    own = _own(tree, 2).split("/")[1]
    found = {
        unit: tree.look(f"{top}/{unit}/cpuset.cpus.effective") or online
        for unit in UNITS
        if unit != own and tree.exists(f"{top}/{unit}")
    }
    if not found:
        raise Absent("there is no slice but that of this process")
    return found


def _groups(tree: Tree, _purpose: Purpose) -> Mapping[str, str]:
    """The CPUs of groups in the hierarchy of version 1, which systemd does not look after."""
    top = _top(tree, 1)
    own = f"{top}{_own(tree, 1)}/"
    found = {
        path: text
        for path in tree.glob(f"{top}/**/cpuset.cpus")
        if not own.startswith(path.removesuffix("cpuset.cpus"))
        if not is_ours(path[len(top) :].split("/")[1])
        if (text := tree.look(path))
    }
    if not found:
        raise Absent("there is no other group with CPUs")
    return found


def _moved_groups(tree: Tree, purpose: Purpose, value: str) -> Sequence[Resource]:
    """A resource for each depth, the deepest first: a group has what those below it have."""
    wish = Wish(value, "within")
    depths: dict[int, list[str]] = {}
    for path, text in _groups(tree, purpose).items():
        if not wish.holds(text, "cpus"):
            depths.setdefault(path.count("/"), []).append(path)
    order = sorted(depths, reverse=True)
    return [one for depth in order for one in written(tree, depths[depth], value, "cpus")]


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
    proc = tree.at("/proc")
    for one in stats(proc):
        if len(one.fields) < 39 or not (flags := int(one.fields[6])) & KTHREAD:
            continue
        cpus = status(one.pid, proc).get(ALLOWED)
        if cpus is not None:
            priority, policy = int(one.fields[37]), int(one.fields[38])
            free = not flags & NO_SETAFFINITY
            yield Thread(str(one.pid), one.name, free, policy, priority, cpus)


def _affinity(*, rcu: bool) -> Place:
    """Which CPUs those threads of the kernel may run on that can be moved.

    These are the ones that run callbacks of RCU, or all others. Threads that the kernel makes after
    the others were moved are where it put them.
    """

    def mine(tree: Tree) -> Iterator[Thread]:
        for one in threads(tree):
            is_rcu = _RCU.fullmatch(one.name) is not None
            if one.movable and is_rcu == rcu and not _OWN_RULES.fullmatch(one.name):
                yield one

    def find(tree: Tree, _purpose: Purpose) -> Mapping[str, str]:
        found = {f"{one.name} ({one.number})": one.cpus for one in mine(tree)}
        if not found:
            raise Absent("no core has its callbacks offloaded (rcu_nocbs)" if rcu
                         else "no thread of the kernel can be seen here")  # fmt: skip
        return found

    def change(tree: Tree, _purpose: Purpose, value: str) -> Sequence[Resource]:
        if not tree.is_live:
            raise Absent("threads of a recorded machine cannot be moved")
        wish = Wish(value, "within")
        away = {one.number: one.name for one in mine(tree) if not wish.holds(one.cpus, "cpus")}
        return [ThreadAffinity(away, value)]

    names = "rcuo threads" if rcu else "other threads of the kernel"
    return Place(
        f"Cpus_allowed_list of {names} in /proc/*/status", find, "cpus", change, optional=True
    )


def _of_softirqs(tree: Tree, purpose: Purpose) -> Iterator[tuple[Thread, str]]:
    """Threads of the device's cores that do softirqs' work, and their real-time priority."""
    if not facts.is_realtime(tree.root):
        raise Absent("softirqs run in threads only on kernels with PREEMPT_RT")
    for one in threads(tree):
        if (match := _SOFTIRQ.fullmatch(one.name)) and int(match[2]) in purpose.cpus:
            yield one, str(one.priority if one.policy == _FIFO else 0)


def _priorities(tree: Tree, purpose: Purpose) -> Mapping[str, str]:
    found = {one.name: priority for one, priority in _of_softirqs(tree, purpose)}
    if not found:
        raise Absent("no thread of softirqs can be seen here")
    return found


def _raised(tree: Tree, purpose: Purpose, value: str) -> Sequence[Resource]:
    if not tree.is_live:
        raise Absent("threads of a recorded machine cannot be changed")
    wish = Wish(value, "at-least")
    low = {one.number: one.name for one, priority in _of_softirqs(tree, purpose)
           if not wish.holds(priority, "number")}  # fmt: skip
    return [ThreadPriority(low, int(value))]


ROWS = (
    row(
        "autogroup",
        Files("/proc/sys/kernel/sched_autogroup_enabled", "number"),
        fixed("0"),
        "Each terminal's tasks share one weight, so that a priority within says nothing outside.",
        "sched(7): the autogroup feature",
        absent="this kernel was built without SCHED_AUTOGROUP",
    ),
    row(
        "real-time-throttling",
        Files("/proc/sys/kernel/sched_rt_runtime_us", "number"),
        _unthrottled,
        "Real-time tasks must leave 5 % of each second to others. Without that a forwarder of "
        "real-time priority that polls is not stopped, nor is one that hangs.",
        "Documentation/scheduler/sched-rt-group.rst; tuned: profile realtime",
    ),
    row(
        "fair-server",
        Files("/sys/kernel/debug/sched/fair_server/cpu{cpu}/runtime", "number"),
        fixed("0"),
        "A core that runs a real-time task lets others run a twentieth of the time.",
        "NV-Kernels pull request 400; kernel/sched/debug.c",
        since="Linux 6.12",
        absent="debugfs is not mounted, or this kernel has no fair server",
    ),
    row(
        "preemption",
        Place(PREEMPTION.place, _preemption, "choice", PREEMPTION.changes),
        fixed("full"),
        "A task waits until the kernel work of another one has ended (none, voluntary), interrupts "
        "it (full), or at the next tick if it is no real-time task (lazy, from Linux 6.13).",
        "Documentation/admin-guide/kernel-parameters.txt: preempt",
        does="Lets a task interrupt the kernel's work for another one.",
        word=lambda _purpose, _tree: "preempt=full",
        absent="debugfs is not mounted, or the model was chosen when the kernel was built",
    ),
    row(
        "slices",
        Place(
            f"AllowedCPUs of {', '.join(UNITS)}",
            _slices,
            "cpus",
            lambda tree, purpose, value: [SliceCpus(list(_slices(tree, purpose)), value)],
        ),
        others,
        "Services and people's programs run on the device's cores. A device that is itself one of"
        " them moves, too.",
        f"systemd.resource-control(5): AllowedCPUs; {_CGROUPS}",
    ),
    row(
        "groups",
        Place("cpuset.cpus of other groups (version 1)", _groups, "cpus", _moved_groups),
        others,
        "Containers and services in groups of their own run on the device's cores.",
        "Documentation/admin-guide/cgroup-v1/cpusets.rst; cpuset(7)",
    ),
    row(
        "rcu-threads",
        _affinity(rcu=True),
        others,
        "Offloaded callbacks of RCU run in threads, which the scheduler may put on any core.",
        f"{JITTER}: rcuo; packet-processing-in-virtualized-environments, section 3",
    ),
    row(
        "kernel-threads",
        _affinity(rcu=False),
        others,
        "Threads that reclaim memory, write files or clean up run on any core.",
        f"{JITTER}: bind others to a housekeeping CPU; Documentation/admin-guide/cpu-isolation.rst",
    ),
    row(
        "softirq-priority",
        Place(
            "real-time priority of ksoftirqd, ktimers and rcuc in /proc/*/stat",
            _priorities,
            "number",
            _raised,
        ),
        fixed(Wish("11", "at-least")),
        "On real-time kernels packets and timers wait for a thread that any other task delays.",
        "OpenShift node tuning operator: openshift-node-performance, group.ksoftirqd, group.rcuc",
    ),
)
