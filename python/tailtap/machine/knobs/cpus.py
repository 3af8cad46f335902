"""Cores kept free: what the kernel was booted with, and what its command line gets wrong."""

from __future__ import annotations

from collections.abc import Mapping

from tailtap.cpulist import list_cpus
from tailtap.machine import facts
from tailtap.machine.knobs import boot_entry, line
from tailtap.machine.knobs.groups import partitioned
from tailtap.machine.knobs.knob import Files, Knob, Told, fixed, on_the_line
from tailtap.machine.knobs.purpose import HOST, PHYSICAL, Purpose
from tailtap.machine.knobs.tree import Absent, Tree, Unreadable
from tailtap.machine.values import Wish

CPU = "/sys/devices/system/cpu"
CLOCK = "/sys/devices/system/clocksource/clocksource0"
PARAMETERS = "Documentation/admin-guide/kernel-parameters.txt"
OFFLOADED = "offloaded RCU callbacks in the kernel's log, or threads rcuo*/N"
LOW = "how-low-can-you-go, Table 1"
VIRTUAL = "packet-processing-in-virtualized-environments, Table 2"


def _isolated(tree: Tree, _purpose: Purpose) -> Mapping[str, str]:
    """Cores that the scheduler leaves alone, by the command line or by control groups."""
    found = set(tree.cpus(f"{CPU}/isolated")) | partitioned(tree)
    return {f"{CPU}/isolated": ",".join(map(str, sorted(found)))}


def _tickless(tree: Tree, _purpose: Purpose) -> Mapping[str, str]:
    text = tree.text(f"{CPU}/nohz_full")
    return {f"{CPU}/nohz_full": "" if text == "(null)" else text}


def _offloaded(tree: Tree, _purpose: Purpose) -> Mapping[str, str]:
    if tree.config("RCU_NOCB_CPU") is False:
        raise Absent("this kernel was built without RCU_NOCB_CPU")
    found = line.offloaded(tree)
    if found is None:
        raise Unreadable("neither the kernel's log nor its threads can be seen from here")
    return {OFFLOADED: list_cpus(found)}


def _given(parameter: str) -> Told:
    """Whether the command line has a word that takes no value."""

    def find(tree: Tree, _purpose: Purpose) -> Mapping[str, str]:
        return {f"{parameter} in /proc/cmdline": "1" if tree.word(parameter) else "0"}

    return Told(f"{parameter} in /proc/cmdline", find, "switch")


def _polled(purpose: Purpose, _tree: Tree) -> str:
    _ = purpose.isolated  # or else nobody's callbacks are offloaded
    return "1"


def _vulnerable(tree: Tree, _purpose: Purpose) -> Mapping[str, str]:
    words = tree.word("mitigations")
    if not tree.exists(f"{CPU}/vulnerabilities"):
        raise Absent("this kernel knows no vulnerabilities of its processor")
    return {"mitigations in /proc/cmdline": words[-1] if words else "auto"}


def _no_threads(_purpose: Purpose, tree: Tree) -> Wish:
    if tree.look(f"{CPU}/smt/control") in ("notsupported", "notimplemented"):
        raise Absent("each core of this machine has one thread")
    return Wish("off", also=("forceoff",))


def _tsc(_purpose: Purpose, tree: Tree) -> str:
    if tree.text(f"{CLOCK}/current_clocksource") != "tsc":
        raise Absent("the kernel does not read the time from the TSC")
    return "reliable"


def _clock(_purpose: Purpose, tree: Tree) -> Wish:
    there = tree.text(f"{CLOCK}/available_clocksource").split()
    if "tsc" not in there:
        raise Absent("the TSC is no clock of this machine")
    return Wish("tsc", also=("kvm-clock", "hyperv_clocksource_tsc_page"))


def _boosting(_purpose: Purpose, tree: Tree) -> Wish:
    if not facts.is_realtime(tree.root):
        raise Absent("this is no real-time kernel")
    return Wish("11", "at-least")


def _patience(_purpose: Purpose, tree: Tree) -> Wish:
    if not tree.cpus(f"{CPU}/nohz_full"):
        raise Absent("no core is without ticks (nohz_full)")
    return Wish("1000", "at-least")


ROWS = (
    Knob(
        "isolated-cpus",
        "cpus",
        Told(f"{CPU}/isolated", _isolated, "cpus"),
        lambda purpose, _tree: Wish(purpose.isolated, "contains"),
        "The scheduler puts other tasks on the device's cores, and moves tasks to balance load.",
        f"Documentation/admin-guide/cpu-isolation.rst; {LOW}",
        removes=("task", "kernel-thread", "device-interrupt"),
        risk=1,
        roles=HOST | {"vm-guest"},
        word=lambda purpose, _tree: f"isolcpus=domain,managed_irq,{purpose.isolated}",
    ),
    Knob(
        "nohz-full",
        "cpus",
        Told(f"{CPU}/nohz_full", _tickless, "cpus"),
        lambda purpose, _tree: Wish(purpose.isolated, "contains"),
        "The tick interrupts a core even when it has one task. It pays for forwarders that poll; "
        "others enter the kernel for each packet, and that costs more on such a core.",
        f"Documentation/admin-guide/cpu-isolation.rst; {LOW}",
        removes=("timer",),
        risk=2,
        word=lambda purpose, _tree: f"nohz_full={purpose.isolated}",
        recommended=False,
        absent="this kernel was built without NO_HZ_FULL",
    ),
    Knob(
        "rcu-nocbs",
        "cpus",
        Told(OFFLOADED, _offloaded, "cpus"),
        lambda purpose, _tree: Wish(purpose.isolated, "contains"),
        "Callbacks of RCU run in a softirq of the core that queued them, in batches.",
        f"{PARAMETERS}; {LOW}; {VIRTUAL}",
        removes=("softirq",),
        risk=1,
        word=lambda purpose, _tree: f"rcu_nocbs={purpose.isolated}",
    ),
    Knob(
        "rcu-nocb-poll",
        "cpus",
        _given("rcu_nocb_poll"),
        _polled,
        "A core with offloaded callbacks wakes the thread that runs them, which polls instead.",
        f"{PARAMETERS}; {LOW}",
        removes=("reschedule-ipi", "kernel-thread"),
        risk=1,
        word=lambda _purpose, _tree: "rcu_nocb_poll",
    ),
    Knob(
        "nohz-full-patience",
        "cpus",
        Files("/sys/module/rcutree/parameters/nohz_full_patience_delay", "number", readonly=True),
        _patience,
        "RCU disturbs a core without ticks as soon as a grace period waits for it.",
        f"{PARAMETERS}: rcutree.nohz_full_patience_delay",
        removes=("timer",),
        risk=1,
        since="Linux 6.12",
        word=lambda purpose, tree: (
            f"rcutree.nohz_full_patience_delay={_patience(purpose, tree).value}"
        ),
        absent="this kernel's RCU has no such delay",
    ),
    Knob(
        "skew-tick",
        "cpus",
        on_the_line("skew_tick", "switch", otherwise="0"),
        fixed("1"),
        "All cores tick at the same moment and wait for each other's locks.",
        f"{PARAMETERS}; {LOW}; {VIRTUAL}",
        removes=("timer",),
        risk=0,
        word=lambda _purpose, _tree: "skew_tick=1",
    ),
    Knob(
        "clock",
        "cpus",
        Files(f"{CLOCK}/current_clocksource"),
        _clock,
        "Reading the time takes a way to a slow device: a microsecond instead of twenty "
        "nanoseconds, several times a packet.",
        "Documentation/timers/timekeeping.rst; clock_gettime(2)",
        removes=("own-work",),
        risk=1,
    ),
    Knob(
        "rcu-priority",
        "cpus",
        Files("/sys/module/rcutree/parameters/kthread_prio", "number", readonly=True),
        _boosting,
        "On a real-time kernel RCU's threads wait behind real-time tasks, until memory runs out.",
        f"{PARAMETERS}: rcutree.kthread_prio; cluster node-tuning-operator: profile "
        "openshift-node-performance",
        removes=("waiting",),
        risk=1,
        word=lambda purpose, tree: f"rcutree.kthread_prio={_boosting(purpose, tree).value}",
    ),
    Knob(
        "interrupt-threads",
        "cpus",
        _given("threadirqs"),
        fixed("1"),
        "Interrupts of devices are handled in threads, which have a priority that can be changed, "
        "and must be woken up. A real-time kernel does so always.",
        f"{PARAMETERS}: threadirqs",
        removes=("device-interrupt", "waiting"),
        risk=2,
        recommended=False,
        word=lambda _purpose, _tree: "threadirqs",
    ),
    Knob(
        "tsc-reliable",
        "cpus",
        on_the_line("tsc", otherwise="checked"),
        _tsc,
        "A timer on each core in turn checks the TSC against another clock.",
        f"{PARAMETERS}; {LOW}; {VIRTUAL}",
        removes=("timer",),
        risk=2,
        word=lambda purpose, tree: f"tsc={_tsc(purpose, tree)}",
    ),
    Knob(
        "corrected-errors",
        "cpus",
        Files("/sys/devices/system/machinecheck/machinecheck*/ignore_ce", "switch"),
        fixed("1"),
        "A timer polls each core's banks for corrected memory errors. Without it, failing memory "
        "is noticed late.",
        f"Documentation/arch/x86/x86_64/boot-options.rst: mce=ignore_ce; {LOW}; {VIRTUAL}",
        removes=("timer",),
        risk=2,
        roles=HOST,
        absent="the kernel checks no machine errors here",
    ),
    Knob(
        "kernel-audit",
        "cpus",
        on_the_line("audit", otherwise="1"),
        fixed(Wish("0", also=("off",))),
        "System calls and logins are reported to an audit daemon.",
        f"{LOW}; {VIRTUAL}",
        removes=("own-work", "kernel-thread"),
        risk=2,
        word=lambda _purpose, _tree: "audit=0",
    ),
    Knob(
        "hyperthreads",
        "cpus",
        Files(f"{CPU}/smt/control"),
        _no_threads,
        "Two threads of a core share its caches and units: one is slow while the other works.",
        f"{VIRTUAL}: nosmt; Documentation/ABI/testing/sysfs-devices-system-cpu",
        removes=("own-work",),
        risk=1,
        roles=PHYSICAL,
        disruptive=True,
    ),
    Knob(
        "mitigations",
        "cpus",
        Told("mitigations in /proc/cmdline", _vulnerable),
        fixed("off"),
        "Each entry into the kernel and each switch of tasks flushes buffers and predictors. "
        "Without this, one tenant can read another's memory.",
        f"{PARAMETERS}; Documentation/admin-guide/hw-vuln/index.rst",
        removes=("own-work",),
        risk=3,
        recommended=False,
    ),
    Knob(
        "iommu",
        "cpus",
        Files("/sys/kernel/iommu_groups/*/type", readonly=True),
        fixed("identity"),
        "Each buffer of a card is mapped for it and unmapped again, which flushes the IOMMU.",
        f"{PARAMETERS}: iommu=pt; Documentation/ABI/testing/sysfs-kernel-iommu_groups",
        removes=("own-work",),
        risk=1,
        roles=HOST,
        word=lambda _purpose, _tree: "iommu=pt",
        absent="there is no IOMMU, or it is off",
    ),
    Knob(
        "line-words",
        "cpus",
        Told("words of /proc/cmdline", line.unknown_words),
        fixed(line.FINE),
        "A misspelt parameter does nothing, and nobody notices: one published kernel line has "
        "such a word.",
        "the kernel's log: Unknown kernel command line parameters",
        removes=(),
        risk=0,
    ),
    Knob(
        "line-cores",
        "cpus",
        Told("lists of cores in /proc/cmdline", line.wrong_lists),
        fixed(line.FINE),
        "A list that names a core twice, or one that the machine lacks, was meant for another.",
        f"Documentation/admin-guide/kernel-parameters.rst: cpu lists; {PARAMETERS}",
        removes=(),
        risk=0,
    ),
    Knob(
        "line-refused",
        "cpus",
        Told("the kernel's log, and how it was built", line.refused),
        fixed(line.FINE),
        "The kernel ignores parameters that it was not built for, and some that contradict others.",
        "kernel/sched/isolation.c; kernel/rcu/tree_nocb.h",
        removes=(),
        risk=0,
    ),
    Knob(
        "line-contradictions",
        "cpus",
        Told("parameters of /proc/cmdline together", line.contradictions),
        fixed(line.FINE),
        "Parameters that only work together, or against each other, leave cores half isolated.",
        "Documentation/admin-guide/cpu-isolation.rst; seapath/ansible issue 865",
        removes=(),
        risk=0,
    ),
    Knob(
        "boot-entry",
        "cpus",
        Told(f"{boot_entry.ENTRY} among the entries of systemd-boot", boot_entry.stale),
        fixed(line.FINE),
        "The entry that tailtap wrote is of one kernel. After a new one it boots the old, or none.",
        "Boot Loader Specification; kernel-install(8)",
        removes=(),
        risk=0,
    ),
)
