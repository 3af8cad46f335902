"""What interrupts the device's cores: devices, the firmware, the kernel's workers and timers."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tailtap.host.changes.kernel_values import Wish
from tailtap.host.changes.resource import Resource
from tailtap.host.facts import machine as facts
from tailtap.host.knobs.knob import Files, Place, fixed, known, others, written
from tailtap.host.knobs.tree import PHYSICAL, Absent, Purpose, Tree, Unreadable
from tailtap.remote import CommandFailed
from tailtap.remote.local import LocalHost

KERNEL = "Documentation/admin-guide/sysctl/kernel.rst"
LATENCY = "tuned: profile network-latency"
WORKQUEUE = "Documentation/core-api/workqueue.rst: affinity scopes"


def others_mask(purpose: Purpose, _tree: Tree) -> Wish:
    """The cores that are not the device's, as a mask."""
    _ = purpose.others
    return Wish(f"{sum(1 << cpu for cpu in purpose.housekeeping):x}", "within")


def of_cards(tree: Tree, purpose: Purpose) -> set[str]:
    """The numbers of the interrupts of the purpose's interfaces.

    They belong to the PCI device, which of virtio cards is the parent of the interface's device.
    The parent of another card may be a port of the PCI bus, with interrupts of its own.
    """
    found: set[str] = set()
    for name in purpose.interfaces:
        device = f"/sys/class/net/{name}/device"
        for folder in (f"{device}/msi_irqs", f"{device}/../virtio*/../msi_irqs"):
            found |= {path.rpartition("/")[2] for path in tree.glob(f"{folder}/*")}
    return found


def _handled(*, of: bool) -> Place:
    """The CPUs that interrupts with a handler may go to: those `of` the cards, or all others.

    Interrupts that the kernel places itself refuse other CPUs: they are read, and left.
    """

    def find(tree: Tree, purpose: Purpose) -> Mapping[str, str]:
        cards = of_cards(tree, purpose)
        found: dict[str, str] = {}
        for path in tree.glob("/proc/irq/*/smp_affinity_list"):
            folder = path.rpartition("/")[0]
            handled = any(tree.at(one).is_dir() for one in tree.glob(f"{folder}/*"))
            if handled and (folder.rpartition("/")[2] in cards) == of:
                found[path] = tree.text(path)
        if not found:
            raise Absent("the cards have no interrupts of their own" if of
                         else "no device interrupts this machine")  # fmt: skip
        return found

    def change(tree: Tree, purpose: Purpose, value: str) -> Sequence[Resource]:
        paths = [
            path
            for path, text in find(tree, purpose).items()
            if not Wish(value, "within").holds(text, "cpus")
        ]
        return written(tree, paths, value, "cpus", optional=True)

    whose = "the cards" if of else "all else"
    return Place(f"/proc/irq/*/smp_affinity_list of {whose}", find, "cpus", change, optional=True)


row = partial(known, group="interrupts")
timer = partial(known, group="timers")

SMI_COUNT = 0x34
"""MSR_SMI_COUNT of arch/x86/include/asm/msr-index.h: interrupts since reset."""

SECONDS = 1.0

_PERF = "/sys/bus/event_source/devices/msr/events/smi"

_REGISTER = struct.Struct("<Q")


def _interrupts(tree: Tree, purpose: Purpose) -> Mapping[str, str]:
    """How many there are on one core in a second; each of them stops all cores."""
    if facts.cpuinfo("vendor_id", tree.root) != "GenuineIntel":
        raise Absent("only processors of Intel count them")
    if facts.under_hypervisor(tree.root):
        raise Absent("a virtual machine is not told")
    path = f"/dev/cpu/{(purpose.cpus or tree.online or (0,))[0]}/msr"
    if tree.exists(path):
        before = _count(tree, path)
        time.sleep(SECONDS)
        return {path: str(_count(tree, path) - before)}
    if tree.is_live and tree.exists(_PERF):
        return {_PERF: _counted_by_perf()}
    raise Unreadable("nothing shows the count: load the module msr, or install perf")


def _count(tree: Tree, path: str) -> int:
    try:
        file = os.open(tree.at(path), os.O_RDONLY)
        try:
            (found,) = _REGISTER.unpack(os.pread(file, _REGISTER.size, SMI_COUNT))
        finally:
            os.close(file)
    except (OSError, struct.error) as error:
        raise Unreadable(f"{path} cannot be read: {getattr(error, 'strerror', error)}") from None
    return int(found) & 0xFFFF_FFFF


def _counted_by_perf() -> str:
    words = ["perf", "stat", "-x", ",", "-C", "0", "-e", "msr/smi/", "sleep", f"{SECONDS:g}"]
    try:
        return LocalHost().run(words).stderr.strip().splitlines()[-1].partition(",")[0]
    except (CommandFailed, IndexError) as error:
        raise Unreadable(f"perf does not tell: {error}") from None


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


ROWS = (
    row(
        "interrupt-default",
        Files("/proc/irq/default_smp_affinity", "mask"),
        others_mask,
        "Interrupts that are requested later may go to the device's cores.",
        "Documentation/core-api/irq/irq-affinity.rst; tuned issue 370; how-low-can-you-go, Table 1",
        does="Sends interrupts that are requested later to the other cores.",
        word=lambda purpose, _tree: f"irqaffinity={purpose.others}",
    ),
    row(
        "device-interrupts",
        _handled(of=False),
        others,
        "Disks, timers and other devices interrupt the device's cores.",
        "Documentation/admin-guide/cpu-isolation.rst; hardware-supported-containers, section III-B",
    ),
    row(
        "card-interrupts",
        _handled(of=True),
        lambda purpose, _tree: Wish(purpose.isolated, "within"),
        "The core that a card interrupts receives its packets. That belongs on the device's cores"
        " for a forwarder in the kernel, and not for one that polls.",
        "hardware-supported-containers, section III-B",
    ),
    row(
        "workqueues-default",
        Files("/sys/devices/virtual/workqueue/cpumask", "mask"),
        others_mask,
        "Work that is bound to no core runs on the device's cores too.",
        f"{WORKQUEUE}; Documentation/admin-guide/cpu-isolation.rst",
    ),
    row(
        "workqueues",
        Files("/sys/devices/virtual/workqueue/*/cpumask", "mask"),
        others_mask,
        "Queues with a mask of their own, such as the one that writes pages back, use any core.",
        f"{WORKQUEUE}; tuned: profile cpu-partitioning",
    ),
    row(
        "firmware-interrupts",
        Place(f"MSR {SMI_COUNT:#x} of a core, for a second", _interrupts, "number"),
        fixed("0"),
        "The firmware takes all cores for tens of microseconds and more (System Management "
        "Interrupts), unseen by tracers. Its settings for power, memory errors and legacy USB "
        "decide how often.",
        "Documentation/admin-guide/cpu-isolation.rst; turbostat(8): SMI",
        roles=PHYSICAL,
    ),
    timer(
        "stat-interval",
        Files("/proc/sys/vm/stat_interval", "number"),
        fixed(Wish("3600", "at-least")),
        "A kernel worker folds each core's memory counters every so many seconds.",
        "how-low-can-you-go, section 4.1; Documentation/admin-guide/sysctl/vm.rst",
    ),
    timer(
        "soft-watchdog",
        Watchdog("/proc/sys/kernel/soft_watchdog", "number"),
        fixed("0"),
        "A timer on each core and a thread of the highest priority look for cores that hang.",
        f"{KERNEL}; how-low-can-you-go, Table 1; "
        "packet-processing-in-virtualized-environments, Table 2",
        does="Turns the watchdog off that looks for cores that hang, with its timer and thread.",
        word=lambda _purpose, _tree: "nosoftlockup",
    ),
    timer(
        "nmi-watchdog",
        Watchdog("/proc/sys/kernel/nmi_watchdog", "number"),
        fixed("0"),
        "A counter of each core raises an interrupt that nothing can mask, and is taken from perf.",
        f"{KERNEL}; how-low-can-you-go, Table 1; {LATENCY}",
        does="Turns the watchdog off that raises an interrupt which nothing can mask.",
        word=lambda _purpose, _tree: "nmi_watchdog=0",
    ),
    timer(
        "watchdog-cores",
        Files("/proc/sys/kernel/watchdog_cpumask", "cpus"),
        others,
        "Where the watchdogs are wanted they need not look at the device's cores. Without any "
        "watchdog this changes nothing.",
        f"{KERNEL}: watchdog_cpumask",
        absent="this kernel has no watchdogs",
    ),
    timer(
        "hung-task",
        Files("/proc/sys/kernel/hung_task_timeout_secs", "number"),
        fixed(Wish("600", "at-least", also=("0",))),
        "A kernel thread looks at all tasks every so many seconds, which takes long with many.",
        f"{KERNEL}; {LATENCY}",
        absent="this kernel has no detector of hung tasks",
    ),
    timer(
        "timer-migration",
        Files("/proc/sys/kernel/timer_migration", "number"),
        fixed("0"),
        "Timers of idle cores move to busy ones. Of those who tune for low latency some switch "
        "this off, and some insist on it.",
        "tuned: profile realtime (0); cluster node-tuning-operator: profile openshift-node (1)",
    ),
    timer(
        "rcu-normal",
        Files("/sys/kernel/rcu_normal", "switch"),
        fixed("1"),
        "Whoever wants a grace period of RCU in a hurry interrupts every core.",
        "Documentation/admin-guide/kernel-parameters.txt: rcupdate.rcu_normal; tuned: profile "
        "realtime",
        does="Makes hurried grace periods of RCU normal ones, which do not interrupt every core.",
        word=lambda _purpose, _tree: "rcupdate.rcu_normal_after_boot=1",
    ),
)
