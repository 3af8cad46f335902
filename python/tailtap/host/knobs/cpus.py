"""Cores kept free: what the kernel was booted with, and what its command line gets wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

from tailtap.base.units import list_cpus
from tailtap.host.changes.kernel_values import Wish
from tailtap.host.facts import machine as facts
from tailtap.host.knobs import line
from tailtap.host.knobs.knob import Files, Place, fixed, known, on_the_line
from tailtap.host.knobs.scheduling import partitioned
from tailtap.host.knobs.tree import HOST, PHYSICAL, Absent, Purpose, Tree, Unreadable

CPU = "/sys/devices/system/cpu"
CLOCK = "/sys/devices/system/clocksource/clocksource0"
PARAMETERS = "Documentation/admin-guide/kernel-parameters.txt"
OFFLOADED = "offloaded RCU callbacks in the kernel's log, or threads rcuo*/N"
ASKED = "AUDIT_GET of the kernel, by netlink"
TRUSTED = "trusted"
MOST_SOCKETS = 2
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


def _callbacks(tree: Tree, _purpose: Purpose) -> Mapping[str, str]:
    """Whether threads poll for callbacks: for nobody's where none are offloaded."""
    polls = bool(tree.word("rcu_nocb_poll")) and line.offloaded(tree) != ()
    return {"rcu_nocb_poll in /proc/cmdline": "1" if polls else "0"}


def _threaded(tree: Tree, _purpose: Purpose) -> Mapping[str, str]:
    """Whether interrupts have threads, which a real-time kernel needs no word for."""
    threads = bool(tree.word("threadirqs")) or facts.is_realtime(tree.root)
    return {"threadirqs in /proc/cmdline": "1" if threads else "0"}


def _polled(purpose: Purpose, _tree: Tree) -> str:
    _ = purpose.isolated  # or else nobody's callbacks are offloaded
    return "1"


def _vulnerable(tree: Tree, _purpose: Purpose) -> Mapping[str, str]:
    words = tree.word("mitigations")
    if not tree.exists(f"{CPU}/vulnerabilities"):
        raise Absent("this kernel knows no vulnerabilities of its processor")
    found = [tree.look(path) or "" for path in tree.glob(f"{CPU}/vulnerabilities/*")]
    if found and not any("Mitigation" in text for text in found):
        return {f"{CPU}/vulnerabilities": "off"}
    return {"mitigations in /proc/cmdline": words[-1] if words else "auto"}


def _no_threads(_purpose: Purpose, tree: Tree) -> Wish:
    if tree.look(f"{CPU}/smt/control") in ("notsupported", "notimplemented"):
        raise Absent("each core of this machine has one thread")
    return Wish("off", also=("forceoff",))


def _tsc(_purpose: Purpose, tree: Tree) -> str:
    if tree.text(f"{CLOCK}/current_clocksource") != "tsc":
        raise Absent("the kernel does not read the time from the TSC")
    return TRUSTED


def _trusting(purpose: Purpose, tree: Tree) -> str:
    _ = _tsc(purpose, tree)
    return "tsc=reliable"


def _checked(tree: Tree, _purpose: Purpose) -> Mapping[str, str]:
    """Whether the kernel checks the TSC, by what makes it stop; arch/x86/kernel/tsc.c.

    It trusts one that somebody vouches for, the hypervisor (`tsc_reliable`) or the command line,
    and from Linux 5.16 on one that runs alike on up to two sockets and can be set right. Without
    another clock there is nothing to check it against.
    """
    flags = facts.cpu_flags(tree.root)
    word = tree.word("tsc")[-1:]
    if word and word[0] in ("reliable", "nowatchdog"):
        return {"tsc in /proc/cmdline": TRUSTED}
    if "tsc_reliable" in flags:
        return {"tsc_reliable in /proc/cpuinfo": TRUSTED}
    steady = {"constant_tsc", "nonstop_tsc", "tsc_adjust"} <= flags
    nodes = len(tree.glob("/sys/devices/system/node/node[0-9]*")) or 1
    if steady and nodes <= MOST_SOCKETS and facts.kernel_at_least((5, 16), tree.root):
        return {"constant_tsc, nonstop_tsc and tsc_adjust in /proc/cpuinfo": TRUSTED}
    if (tree.look(f"{CLOCK}/available_clocksource") or "").split() == ["tsc"]:
        return {f"{CLOCK}/available_clocksource": TRUSTED}
    return {"tsc in /proc/cmdline, flags in /proc/cpuinfo": "checked"}


def _audited(tree: Tree, _purpose: Purpose) -> Mapping[str, str]:
    """Whether system calls are reported. The word alone decides nothing but ``audit=0``."""
    if tree.word("audit")[-1:] in (["0"], ["off"]):
        return {"audit in /proc/cmdline": "0"}
    if not tree.is_live:
        raise Unreadable("only the running kernel says whether anybody has switched it on")
    from tailtap.host.facts.kernel_audit import enabled  # takes a while to load

    return {ASKED: str(enabled())}


def _broadcasting(tree: Tree, _purpose: Purpose) -> Mapping[str, str]:
    """How interrupts for all other cores are sent, as the kernel's log says."""
    if not facts.cpu_flags(tree.root):
        raise Absent("only x86 processors choose")
    pattern = re.compile(r"IPI shorthand broadcast: (\w+)")
    try:
        found = [match[1] for text in tree.messages() if (match := pattern.search(text))]
    except Unreadable:
        found = []
    if found:
        return {"IPI shorthand broadcast in the kernel's log": found[-1]}
    word = tree.word("no_ipi_broadcast")[-1:]
    return {"no_ipi_broadcast in /proc/cmdline": "disabled" if word == ["1"] else "enabled"}


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


row = partial(known, group="cpus")
ROWS = (
    row(
        "isolated-cpus",
        Place(f"{CPU}/isolated", _isolated, "cpus"),
        lambda purpose, _tree: Wish(purpose.isolated, "contains"),
        "The scheduler puts other tasks on the device's cores, and moves tasks to balance load.",
        f"Documentation/admin-guide/cpu-isolation.rst; {LOW}",
        roles=HOST | {"vm-guest"},
        does="Keeps other tasks, load balancing and managed interrupts off the device's cores.",
        word=lambda purpose, _tree: f"isolcpus=domain,managed_irq,{purpose.isolated}",
    ),
    row(
        "nohz-full",
        Place(f"{CPU}/nohz_full", _tickless, "cpus"),
        lambda purpose, _tree: Wish(purpose.isolated, "contains"),
        "The tick interrupts a core even when it has one task. It pays for forwarders that poll: "
        "entering the kernel costs more on such a core.",
        f"Documentation/admin-guide/cpu-isolation.rst; {LOW}",
        does="Stops the tick on the device's cores while one task runs there.",
        word=lambda purpose, _tree: f"nohz_full={purpose.isolated}",
        absent="this kernel was built without NO_HZ_FULL",
    ),
    row(
        "rcu-nocbs",
        Place(OFFLOADED, _offloaded, "cpus"),
        lambda purpose, _tree: Wish(purpose.isolated, "contains"),
        "Callbacks of RCU run in a softirq of the core that queued them, in batches.",
        f"{PARAMETERS}; {LOW}; {VIRTUAL}",
        does="Moves RCU's callbacks from the device's cores to threads, which can run elsewhere.",
        word=lambda purpose, _tree: f"rcu_nocbs={purpose.isolated}",
    ),
    row(
        "rcu-nocb-poll",
        Place("rcu_nocb_poll in /proc/cmdline, with offloaded callbacks", _callbacks, "switch"),
        _polled,
        "A core with offloaded callbacks wakes the thread that runs them, which polls instead.",
        f"{PARAMETERS}; {LOW}",
        does="Lets the threads of RCU's callbacks poll, so that no core has to wake them.",
        word=lambda _purpose, _tree: "rcu_nocb_poll",
    ),
    row(
        "nohz-full-patience",
        Files("/sys/module/rcutree/parameters/nohz_full_patience_delay", "number", settable=False),
        _patience,
        "RCU disturbs a core without ticks as soon as a grace period waits for it.",
        f"{PARAMETERS}: rcutree.nohz_full_patience_delay",
        since="Linux 6.12",
        does="Lets RCU wait longer before it disturbs a core without ticks.",
        word=lambda purpose, tree: (
            f"rcutree.nohz_full_patience_delay={_patience(purpose, tree).value}"
        ),
        absent="this kernel's RCU has no such delay",
    ),
    row(
        "skew-tick",
        on_the_line("skew_tick", "switch", otherwise="0"),
        fixed("1"),
        "All cores tick at the same moment and wait for each other's locks.",
        f"{PARAMETERS}; {LOW}; {VIRTUAL}",
        does="Spreads the cores' ticks over time, so that they do not wait for each other's locks.",
        word=lambda _purpose, _tree: "skew_tick=1",
    ),
    row(
        "clock",
        Files(f"{CLOCK}/current_clocksource"),
        _clock,
        "Reading the time takes a way to a slow device: a microsecond instead of twenty "
        "nanoseconds, several times a packet.",
        "Documentation/timers/timekeeping.rst; clock_gettime(2)",
    ),
    row(
        "rcu-priority",
        Files("/sys/module/rcutree/parameters/kthread_prio", "number", settable=False),
        _boosting,
        "On a real-time kernel RCU's threads wait behind real-time tasks, until memory runs out.",
        f"{PARAMETERS}: rcutree.kthread_prio; cluster node-tuning-operator: profile "
        "openshift-node-performance",
        does="Raises the priority of RCU's threads above that of real-time tasks.",
        word=lambda purpose, tree: f"rcutree.kthread_prio={_boosting(purpose, tree).value}",
    ),
    row(
        "interrupt-threads",
        Place("threadirqs in /proc/cmdline, or a real-time kernel", _threaded, "switch"),
        fixed("1"),
        "Interrupts of devices are handled in threads, which have a priority and must be woken "
        "up. A real-time kernel does so always.",
        f"{PARAMETERS}: threadirqs",
        does="Moves the handling of devices' interrupts into threads.",
        word=lambda _purpose, _tree: "threadirqs",
    ),
    row(
        "tsc-reliable",
        Place("tsc in /proc/cmdline, flags in /proc/cpuinfo", _checked),
        _tsc,
        "Where the kernel does not trust the TSC, a timer on each core in turn checks it against "
        "another clock.",
        f"{PARAMETERS}; {LOW}; {VIRTUAL}",
        does="Turns the timer off that checks the TSC against another clock.",
        word=_trusting,
    ),
    row(
        "corrected-errors",
        Files("/sys/devices/system/machinecheck/machinecheck*/ignore_ce", "switch"),
        fixed("1"),
        "A timer polls each core's banks for corrected memory errors. Without it, failing memory "
        "is noticed late.",
        f"Documentation/arch/x86/x86_64/boot-options.rst: mce=ignore_ce; {LOW}; {VIRTUAL}",
        roles=HOST,
        absent="the kernel checks no machine errors here",
    ),
    row(
        "kernel-audit",
        Place(ASKED, _audited),
        fixed("0"),
        "System calls and logins are reported to an audit daemon. The kernel is asked: 0 is off, 1 "
        "on, 2 on until the next boot.",
        f"{LOW}; {VIRTUAL}",
        does="Turns the reports of system calls and logins to an audit daemon off.",
        word=lambda _purpose, _tree: "audit=0",
    ),
    row(
        "ipi-broadcast",
        Place("IPI shorthand broadcast in the kernel's log", _broadcasting),
        fixed("disabled"),
        "An interrupt for all other cores is one message to every core, those that are off "
        "included. One by one it reaches who is meant, and takes the sender longer.",
        "arch/x86/kernel/apic/ipi.c: no_ipi_broadcast",
        does="Sends an interrupt for all other cores to each of them, one by one.",
        word=lambda _purpose, _tree: "no_ipi_broadcast=1",
    ),
    row(
        "hyperthreads",
        Files(f"{CPU}/smt/control"),
        _no_threads,
        "Two threads of a core share its caches and units: one is slow while the other works.",
        f"{VIRTUAL}: nosmt; Documentation/ABI/testing/sysfs-devices-system-cpu",
        roles=PHYSICAL,
    ),
    row(
        "mitigations",
        Place("mitigations in /proc/cmdline", _vulnerable),
        fixed("off"),
        "Each entry into the kernel and each switch of tasks flushes buffers and predictors. "
        "Without this, one tenant can read another's memory.",
        f"{PARAMETERS}; Documentation/admin-guide/hw-vuln/index.rst",
    ),
    row(
        "iommu",
        Files("/sys/kernel/iommu_groups/*/type", settable=False),
        fixed("identity"),
        "Each buffer of a card is mapped for it and unmapped again, which flushes the IOMMU.",
        f"{PARAMETERS}: iommu=pt; Documentation/ABI/testing/sysfs-kernel-iommu_groups",
        roles=HOST,
        does="Lets cards reach memory directly, without a mapping for each buffer.",
        word=lambda _purpose, _tree: "iommu=pt",
        absent="there is no IOMMU, or it is off",
    ),
    row(
        "line-words",
        Place("words of /proc/cmdline", line.said(line.unknown_words)),
        fixed(line.FINE),
        "A misspelt parameter does nothing, and nobody notices: one published kernel line has "
        "such a word.",
        "the kernel's log: Unknown kernel command line parameters",
    ),
    row(
        "line-cores",
        Place("lists of cores in /proc/cmdline", line.said(line.wrong_lists)),
        fixed(line.FINE),
        "A list that names a core twice, or one that the machine lacks, was meant for another.",
        f"Documentation/admin-guide/kernel-parameters.rst: cpu lists; {PARAMETERS}",
    ),
    row(
        "line-refused",
        Place("the kernel's log, and how it was built", line.said(line.refused)),
        fixed(line.FINE),
        "The kernel ignores parameters that it was not built for, and some that contradict others.",
        "kernel/sched/isolation.c; kernel/rcu/tree_nocb.h",
    ),
    row(
        "line-contradictions",
        Place("parameters of /proc/cmdline together", line.said(line.contradictions)),
        fixed(line.FINE),
        "Parameters that only work together, or against each other, leave cores half isolated.",
        "Documentation/admin-guide/cpu-isolation.rst; seapath/ansible issue 865",
    ),
    row(
        "boot-entry",
        Place(f"{line.ENTRY} among the entries of systemd-boot", line.stale_entry),
        fixed(line.FINE),
        "The entry that tailtap wrote is of one kernel. After a new one it boots the old, or none.",
        "Boot Loader Specification; kernel-install(8)",
    ),
)
