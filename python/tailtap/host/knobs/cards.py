"""Network cards, as far as files of /sys tell and set it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tailtap.host.changes.kernel_values import Form, Wish
from tailtap.host.changes.resource import Resource
from tailtap.host.knobs.interrupts import others_mask
from tailtap.host.knobs.knob import Files, Knob, fixed
from tailtap.host.knobs.purpose import PHYSICAL, Purpose
from tailtap.host.knobs.tree import Absent, Tree

CARD = "/sys/class/net/{interface}"
SCALING = "Documentation/networking/scaling.rst"
NAPI = "Documentation/networking/napi.rst"


def _device_mask(purpose: Purpose, _tree: Tree) -> Wish:
    _ = purpose.isolated
    return Wish(f"{sum(1 << cpu for cpu in purpose.cpus):x}", "within")


@dataclass(frozen=True)
class OtherSteering:
    """Receive packet steering of interfaces that are not the purpose's."""

    form: Form = "mask"
    settable: bool = True
    place: str = "/sys/class/net/*/queues/rx-*/rps_cpus of other interfaces"

    def _files(self, tree: Tree, purpose: Purpose) -> tuple[Files, Purpose]:
        names = {path.split("/")[4] for path in tree.glob("/sys/class/net/*/queues/rx-*/rps_cpus")}
        others = tuple(sorted(names - set(purpose.interfaces)))
        if not others:
            raise Absent("there is no other interface")
        return Files(f"{CARD}/queues/rx-*/rps_cpus", "mask"), replace(purpose, interfaces=others)

    def read(self, tree: Tree, purpose: Purpose) -> Mapping[str, str]:
        files, others = self._files(tree, purpose)
        return files.read(tree, others)

    def changes(self, tree: Tree, purpose: Purpose, value: str) -> Sequence[Resource]:
        files, others = self._files(tree, purpose)
        return files.changes(tree, others, value)


def _link_power(_purpose: Purpose, tree: Tree) -> str:
    """Where the firmware keeps the links, the kernel takes no policy and shows no states."""
    if not tree.glob("/sys/bus/pci/devices/*/link/*_aspm"):
        raise Absent("the kernel manages the power of no PCI link")
    return "performance"


row = partial(Knob, group="cards")
ROWS = (
    row(
        "receive-steering",
        Files(f"{CARD}/queues/rx-*/rps_cpus", "mask"),
        _device_mask,
        "Packets of the device's cards are received on cores that are not the device's. An empty "
        "mask leaves them where the card interrupts.",
        f"{SCALING}: RPS; cluster node-tuning-operator",
        removes=("foreign-net-rx", "own-work"),
        risk=0,
    ),
    row(
        "other-steering",
        OtherSteering(),
        others_mask,
        "Packets of other interfaces are received on the device's cores.",
        f"{SCALING}: RPS; cluster node-tuning-operator",
        removes=("foreign-net-rx",),
        risk=0,
    ),
    row(
        "threaded-napi",
        Files(f"{CARD}/threaded", "number"),
        fixed("1"),
        "Packets are received by a kernel thread for each queue, which can be pinned and given a "
        "priority, but must be woken up.",
        f"{NAPI}: threaded",
        removes=("waiting",),
        recommended=False,
        absent="this kernel has no threaded NAPI",
    ),
    row(
        "deferred-interrupts",
        Files(f"{CARD}/napi_defer_hard_irqs", "number"),
        fixed("0"),
        "After a poll without packets interrupts stay off for so many polls more, which delays "
        "what they serve. A program that polls (SO_PREFER_BUSY_POLL, AF_XDP) is interrupted "
        "unless it is above 0.",
        f"{NAPI}: software IRQ coalescing, busy polling; RTC-Testbench pull request 55",
        removes=("device-interrupt", "link"),
        recommended=False,
    ),
    row(
        "flush-timeout",
        Files(f"{CARD}/gro_flush_timeout", "number"),
        fixed("0"),
        "Packets wait so many nanoseconds for others to be joined with, and deferred interrupts "
        "for a poll. Preferred busy polling (AF_XDP) needs more than lies between two polls of "
        "its program.",
        f"{NAPI}: software IRQ coalescing, busy polling; RTC-Testbench pull request 55",
        removes=("link",),
        recommended=False,
    ),
    row(
        "card-power",
        Files(f"{CARD}/device/power/control"),
        fixed("on"),
        "A card that has nothing to do is put to sleep.",
        "Documentation/ABI/testing/sysfs-devices-power: control",
        removes=("link",),
        risk=0,
        roles=PHYSICAL,
        absent="the power of these cards is not managed",
    ),
    row(
        "link-power",
        Files("/sys/module/pcie_aspm/parameters/policy", "choice"),
        _link_power,
        "PCI links that are idle take microseconds to wake up.",
        "Documentation/admin-guide/kernel-parameters.txt: pcie_aspm.policy",
        removes=("link",),
        roles=PHYSICAL,
        absent="the kernel does not manage the power of PCI links",
    ),
    row(
        "receive-budget",
        Files("/proc/sys/net/core/netdev_budget", "number"),
        fixed(Wish("600", "at-least")),
        "After so many packets the receiving softirq lets others go first. More is better for "
        "bursts, and worse for whoever waits for the core.",
        "Documentation/admin-guide/sysctl/net.rst: netdev_budget; tuned: profile "
        "network-throughput",
        removes=("waiting", "behind"),
        recommended=False,
    ),
    row(
        "receive-backlog",
        Files("/proc/sys/net/core/netdev_max_backlog", "number"),
        fixed(Wish("10000", "at-least")),
        "Packets beyond so many that wait for a core are dropped, of veth and with steering. A "
        "longer queue loses less and is later.",
        "Documentation/admin-guide/sysctl/net.rst: netdev_max_backlog",
        recommended=False,
    ),
    row(
        "busy-poll",
        Files("/proc/sys/net/core/busy_poll", "number"),
        fixed(Wish("50", "at-least")),
        "A program that waits for sockets in poll or select looks at the card itself for so many "
        "microseconds. Forwarders in the kernel have no sockets.",
        "Documentation/admin-guide/sysctl/net.rst: busy_poll; tuned: profile network-latency",
        removes=("waiting",),
        recommended=False,
    ),
    row(
        "busy-read",
        Files("/proc/sys/net/core/busy_read", "number"),
        fixed(Wish("50", "at-least")),
        "A program that reads a socket looks at the card itself for so many microseconds. "
        "Forwarders in the kernel have no sockets.",
        "Documentation/admin-guide/sysctl/net.rst: busy_read; tuned: profile network-latency",
        removes=("waiting",),
        recommended=False,
    ),
)
