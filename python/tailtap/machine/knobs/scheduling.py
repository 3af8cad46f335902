"""How the scheduler shares cores."""

from __future__ import annotations

from tailtap.machine.knobs.knob import Files, Knob, fixed

ROWS = (
    Knob(
        "autogroup",
        "scheduling",
        Files("/proc/sys/kernel/sched_autogroup_enabled", "number"),
        fixed("0"),
        "Each terminal's tasks share one weight, so that a priority within says nothing outside.",
        "sched(7): the autogroup feature",
        removes=("waiting",),
        risk=0,
        absent="this kernel was built without SCHED_AUTOGROUP",
    ),
    Knob(
        "real-time-throttling",
        "scheduling",
        Files("/proc/sys/kernel/sched_rt_runtime_us", "number"),
        fixed("-1"),
        "Real-time tasks must leave 5 % of each second to others. Without that a forwarder of "
        "real-time priority that polls is not stopped, nor is one that hangs.",
        "Documentation/scheduler/sched-rt-group.rst; tuned: profile realtime",
        removes=("throttled",),
        risk=2,
        recommended=False,
    ),
    Knob(
        "fair-server",
        "scheduling",
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
    Knob(
        "preemption",
        "scheduling",
        Files("/sys/kernel/debug/sched/preempt", "choice"),
        fixed("full"),
        "A task waits until the kernel work of another one has ended, or interrupts it.",
        "Documentation/admin-guide/kernel-parameters.txt: preempt",
        removes=("waiting",),
        risk=1,
        recommended=False,
        word=lambda _purpose, _tree: "preempt=full",
        absent="debugfs is not mounted, or the model was chosen when the kernel was built",
    ),
)
