"""Timers, watchdogs and kernel threads that come by now and then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from tailtap.host.changes.kernel_values import Wish
from tailtap.host.knobs.knob import Files, Knob, fixed
from tailtap.host.knobs.purpose import Purpose
from tailtap.host.knobs.tree import Tree

KERNEL = "Documentation/admin-guide/sysctl/kernel.rst"
LATENCY = "tuned: profile network-latency"


@dataclass(frozen=True)
class Watchdog(Files):
    """The switch of one watchdog, which `kernel.watchdog` and `watchdog_thresh` of 0 overrule.

    Its file keeps what was written there; kernel/watchdog.c.
    """

    def read(self, tree: Tree, purpose: Purpose) -> Mapping[str, str]:
        found = super().read(tree, purpose)
        masters = (
            tree.look(f"/proc/sys/kernel/{name}") for name in ("watchdog", "watchdog_thresh")
        )
        return dict.fromkeys(found, "0") if "0" in masters else found


row = partial(Knob, group="timers")
ROWS = (
    row(
        "stat-interval",
        Files("/proc/sys/vm/stat_interval", "number"),
        fixed(Wish("3600", "at-least")),
        "A kernel worker folds each core's memory counters every so many seconds.",
        "how-low-can-you-go, section 4.1; Documentation/admin-guide/sysctl/vm.rst",
        removes=("kernel-thread",),
        risk=0,
    ),
    row(
        "soft-watchdog",
        Watchdog("/proc/sys/kernel/soft_watchdog", "number"),
        fixed("0"),
        "A timer on each core and a thread of the highest priority look for cores that hang.",
        f"{KERNEL}; how-low-can-you-go, Table 1; "
        "packet-processing-in-virtualized-environments, Table 2",
        removes=("timer", "kernel-thread"),
        does="Turns the watchdog off that looks for cores that hang, with its timer and thread.",
        word=lambda _purpose, _tree: "nosoftlockup",
    ),
    row(
        "nmi-watchdog",
        Watchdog("/proc/sys/kernel/nmi_watchdog", "number"),
        fixed("0"),
        "A counter of each core raises an interrupt that nothing can mask, and is taken from perf.",
        f"{KERNEL}; how-low-can-you-go, Table 1; {LATENCY}",
        removes=("nmi",),
        does="Turns the watchdog off that raises an interrupt which nothing can mask.",
        word=lambda _purpose, _tree: "nmi_watchdog=0",
    ),
    row(
        "watchdog-cores",
        Files("/proc/sys/kernel/watchdog_cpumask", "cpus"),
        lambda purpose, _tree: Wish(purpose.others, "within"),
        "Where the watchdogs are wanted they need not look at the device's cores. Without any "
        "watchdog this changes nothing.",
        f"{KERNEL}: watchdog_cpumask",
        removes=("timer", "kernel-thread", "nmi"),
        recommended=False,
        absent="this kernel has no watchdogs",
    ),
    row(
        "hung-task",
        Files("/proc/sys/kernel/hung_task_timeout_secs", "number"),
        fixed(Wish("600", "at-least", also=("0",))),
        "A kernel thread looks at all tasks every so many seconds, which takes long with many.",
        f"{KERNEL}; {LATENCY}",
        removes=("kernel-thread",),
        risk=0,
        absent="this kernel has no detector of hung tasks",
    ),
    row(
        "timer-migration",
        Files("/proc/sys/kernel/timer_migration", "number"),
        fixed("0"),
        "Timers of idle cores move to busy ones. Of those who tune for low latency some switch "
        "this off, and some insist on it.",
        "tuned: profile realtime (0); cluster node-tuning-operator: profile openshift-node (1)",
        removes=("timer",),
        recommended=False,
    ),
    row(
        "rcu-normal",
        Files("/sys/kernel/rcu_normal", "switch"),
        fixed("1"),
        "Whoever wants a grace period of RCU in a hurry interrupts every core.",
        "Documentation/admin-guide/kernel-parameters.txt: rcupdate.rcu_normal; tuned: profile "
        "realtime",
        removes=("function-call-ipi",),
        does="Makes hurried grace periods of RCU normal ones, which do not interrupt every core.",
        word=lambda _purpose, _tree: "rcupdate.rcu_normal_after_boot=1",
    ),
)
