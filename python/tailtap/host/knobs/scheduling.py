"""How the scheduler shares cores."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tailtap.host.changes.kernel_values import Form
from tailtap.host.changes.resource import Resource
from tailtap.host.knobs.knob import Files, Knob, fixed
from tailtap.host.knobs.purpose import Purpose
from tailtap.host.knobs.tree import Absent, Tree, Unreadable

SERVERS = "/sys/kernel/debug/sched/fair_server"


def _unthrottled(_purpose: Purpose, tree: Tree) -> str:
    if tree.exists(SERVERS) and not tree.config("RT_GROUP_SCHED"):
        raise Absent("this kernel keeps time for others by its fair server (fair-server) instead")
    return "-1"


@dataclass(frozen=True)
class Preemption:
    """The preemption model, by the kernel's switch, or by its log where debugfs is closed."""

    form: Form = "choice"
    place: str = "/sys/kernel/debug/sched/preempt"
    settable: bool = True

    def read(self, tree: Tree, purpose: Purpose) -> Mapping[str, str]:
        try:
            return Files(self.place).read(tree, purpose)
        except (Absent, Unreadable):
            told = _told_model(tree)
            if told is None:
                raise
            return {"Dynamic Preempt in the kernel's log": told}

    def changes(self, tree: Tree, purpose: Purpose, value: str) -> Sequence[Resource]:
        return Files(self.place, self.form).changes(tree, purpose, value)


def _told_model(tree: Tree) -> str | None:
    """What the kernel's log says that it began with; None without such a line."""
    try:
        found = (re.search(r"Dynamic Preempt: (\w+)", line) for line in tree.messages())
        return next((match[1] for match in found if match), None)
    except Unreadable:
        return None


row = partial(Knob, group="scheduling")
ROWS = (
    row(
        "autogroup",
        Files("/proc/sys/kernel/sched_autogroup_enabled", "number"),
        fixed("0"),
        "Each terminal's tasks share one weight, so that a priority within says nothing outside.",
        "sched(7): the autogroup feature",
        removes=("waiting",),
        risk=0,
        absent="this kernel was built without SCHED_AUTOGROUP",
    ),
    row(
        "real-time-throttling",
        Files("/proc/sys/kernel/sched_rt_runtime_us", "number"),
        _unthrottled,
        "Real-time tasks must leave 5 % of each second to others. Without that a forwarder of "
        "real-time priority that polls is not stopped, nor is one that hangs.",
        "Documentation/scheduler/sched-rt-group.rst; tuned: profile realtime",
        removes=("throttled",),
        risk=2,
        recommended=False,
    ),
    row(
        "fair-server",
        Files("/sys/kernel/debug/sched/fair_server/cpu{cpu}/runtime", "number"),
        fixed("0"),
        "A core that runs a real-time task lets others run a twentieth of the time.",
        "NV-Kernels pull request 400; kernel/sched/debug.c",
        removes=("throttled", "timer"),
        risk=2,
        since="Linux 6.12",
        recommended=False,
        absent="debugfs is not mounted, or this kernel has no fair server",
    ),
    row(
        "preemption",
        Preemption(),
        fixed("full"),
        "A task waits until the kernel work of another one has ended (none, voluntary), interrupts "
        "it (full), or at the next tick if it is no real-time task (lazy, from Linux 6.13).",
        "Documentation/admin-guide/kernel-parameters.txt: preempt",
        removes=("waiting",),
        recommended=False,
        does="Lets a task interrupt the kernel's work for another one.",
        word=lambda _purpose, _tree: "preempt=full",
        absent="debugfs is not mounted, or the model was chosen when the kernel was built",
    ),
)
