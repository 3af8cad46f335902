"""Interrupts of devices and of the firmware, and the kernel's workers, off the device's cores."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from tailtap.host.changes.kernel_values import Form, KernelValue, Wish, parse
from tailtap.host.changes.resource import Resource
from tailtap.host.facts import machine as facts
from tailtap.host.knobs.knob import Files, Knob, Told, Where, fixed
from tailtap.host.knobs.purpose import PHYSICAL, Purpose
from tailtap.host.knobs.tree import Absent, Tree, Unreadable
from tailtap.remote import CommandFailed
from tailtap.remote.local import LocalHost

WORKQUEUE = "Documentation/core-api/workqueue.rst: affinity scopes"


def _others(purpose: Purpose, _tree: Tree) -> Wish:
    return Wish(purpose.others, "within")


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


@dataclass(frozen=True)
class Interrupts(Where):
    """The CPUs that interrupts with a handler may go to: those of the cards, or all others.

    Interrupts that the kernel places itself refuse other CPUs: they are read, and left.
    """

    whose: Literal["cards", "others"]
    form: Form = "cpus"
    optional: bool = True

    @property
    def place(self) -> str:
        of = "of the cards" if self.whose == "cards" else "of all else"
        return f"/proc/irq/*/smp_affinity_list {of}"

    def read(self, tree: Tree, purpose: Purpose) -> Mapping[str, str]:
        cards = of_cards(tree, purpose)
        found: dict[str, str] = {}
        for path in tree.glob("/proc/irq/*/smp_affinity_list"):
            folder = path.rpartition("/")[0]
            number = folder.rpartition("/")[2]
            handled = any(tree.at(one).is_dir() for one in tree.glob(f"{folder}/*"))
            if handled and (number in cards) == (self.whose == "cards"):
                found[path] = tree.text(path)
        if not found:
            raise Absent("the cards have no interrupts of their own" if self.whose == "cards"
                         else "no device interrupts this machine")  # fmt: skip
        return found

    def changes(self, tree: Tree, purpose: Purpose, value: str) -> Sequence[Resource]:
        wanted = parse(value, "cpus")
        paths = [
            path
            for path, text in self.read(tree, purpose).items()
            if not Wish(value, "within").holds(text, "cpus") or not wanted
        ]
        return [KernelValue(paths, value, "cpus", optional=True, root=str(tree.root))]


row = partial(Knob, group="interrupts")

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


ROWS = (
    row(
        "interrupt-default",
        Files("/proc/irq/default_smp_affinity", "mask"),
        others_mask,
        "Interrupts that are requested later may go to the device's cores.",
        "Documentation/core-api/irq/irq-affinity.rst; tuned issue 370; how-low-can-you-go, Table 1",
        removes=("device-interrupt",),
        does="Sends interrupts that are requested later to the other cores.",
        word=lambda purpose, _tree: f"irqaffinity={purpose.others}",
    ),
    row(
        "device-interrupts",
        Interrupts("others"),
        _others,
        "Disks, timers and other devices interrupt the device's cores.",
        "Documentation/admin-guide/cpu-isolation.rst; hardware-supported-containers, section III-B",
        removes=("device-interrupt",),
    ),
    row(
        "card-interrupts",
        Interrupts("cards"),
        lambda purpose, _tree: Wish(purpose.isolated, "within"),
        "The core that a card interrupts receives its packets. That belongs on the device's cores"
        " for a forwarder in the kernel, and not for one that polls.",
        "hardware-supported-containers, section III-B",
        removes=("foreign-net-rx", "device-interrupt"),
        recommended=False,
    ),
    row(
        "workqueues-default",
        Files("/sys/devices/virtual/workqueue/cpumask", "mask"),
        others_mask,
        "Work that is bound to no core runs on the device's cores too.",
        f"{WORKQUEUE}; Documentation/admin-guide/cpu-isolation.rst",
        removes=("kernel-thread",),
    ),
    row(
        "workqueues",
        Files("/sys/devices/virtual/workqueue/*/cpumask", "mask"),
        others_mask,
        "Queues with a mask of their own, such as the one that writes pages back, use any core.",
        f"{WORKQUEUE}; tuned: profile cpu-partitioning",
        removes=("kernel-thread",),
    ),
    row(
        "firmware-interrupts",
        Told(f"MSR {SMI_COUNT:#x} of a core, for a second", _interrupts, "number"),
        fixed("0"),
        "The firmware takes all cores for tens of microseconds and more (System Management "
        "Interrupts), unseen by tracers. Its settings for power, memory errors and legacy USB "
        "decide how often.",
        "Documentation/admin-guide/cpu-isolation.rst; turbostat(8): SMI",
        removes=("gap",),
        risk=0,
        roles=PHYSICAL,
    ),
)
