"""Network cards: what files of /sys tell and set, and what `ethtool` does.

Of the latter are what cards wait for before they interrupt, merge, split, or save energy by; the
cards are those of this process's network namespace.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from tailtap.base.errors import MachineError
from tailtap.host.changes.kernel_values import Form, Wish
from tailtap.host.changes.resource import Resource
from tailtap.host.knobs.interrupts import others_mask
from tailtap.host.knobs.knob import Files, Place, fixed, known
from tailtap.host.knobs.tree import HOST, PHYSICAL, Absent, Purpose, Tree, Unreadable
from tailtap.host.net.card_settings import SHOW, CardSetting, settings

CARD = "/sys/class/net/{interface}"

SCALING = "Documentation/networking/scaling.rst"

NAPI = "Documentation/networking/napi.rst"


def _device_mask(purpose: Purpose, _tree: Tree) -> Wish:
    _ = purpose.isolated
    return Wish(f"{sum(1 << cpu for cpu in purpose.cpus):x}", "within")


STEERING = Files(f"{CARD}/queues/rx-*/rps_cpus", "mask")
"""Receive packet steering of the purpose's interfaces."""


def _of_others(tree: Tree, purpose: Purpose) -> Purpose:
    """The same, for the interfaces that are not the purpose's."""
    names = {path.split("/")[4] for path in tree.glob("/sys/class/net/*/queues/rx-*/rps_cpus")}
    others = tuple(sorted(names - set(purpose.interfaces)))
    if not others:
        raise Absent("there is no other interface")
    return replace(purpose, interfaces=others)


def _link_power(_purpose: Purpose, tree: Tree) -> str:
    """Where the firmware keeps the links, the kernel takes no policy and shows no states."""
    if not tree.glob("/sys/bus/pci/devices/*/link/*_aspm"):
        raise Absent("the kernel manages the power of no PCI link")
    return "performance"


Settings = Mapping[str, str]

INTEL = "Intel Ethernet 800 Series Linux Performance Tuning Guide"

LARGEST = "largest"

NETLINK = "Documentation/networking/ethtool-netlink.rst"

_SPLITTING = re.compile("tx-tcp.*-segmentation")
"""The features of TCP segmentation; netdev_features_strings of the kernel."""


def _of_card(
    table: str,
    what: str,
    value: Callable[[Settings], str | None],
    change: Callable[[Settings, str], Settings],
    form: Form = "text",
) -> Place:
    """What `ethtool` says of each card of the purpose in a `table`, a key of `SHOW`.

    `value` is the knob's in a card's settings, None for a card that does not have it; `change` has
    the settings that make it another value.
    """

    def find(tree: Tree, purpose: Purpose) -> Mapping[str, str]:
        found = {name: value(told) for name, told in _cards(tree, purpose, table).items()}
        known = {f"{what} of {name}": one for name, one in found.items() if one is not None}
        if not known:
            raise Absent(f"no card here lets anybody choose ({', '.join(purpose.interfaces)})")
        return known

    def changes(tree: Tree, purpose: Purpose, wanted: str) -> Sequence[Resource]:
        return [
            CardSetting(name, table, words)
            for name, told in _cards(tree, purpose, table).items()
            if value(told) is not None and (words := change(told, wanted))
        ]

    return Place(f"{what} in ethtool {SHOW[table]} interface", find, form, changes)


def _cards(tree: Tree, purpose: Purpose, table: str) -> dict[str, dict[str, str]]:
    if not purpose.interfaces:
        raise Absent("there is no network card to look at")
    if not tree.is_live:
        raise Absent("a recorded machine has no cards to ask")
    try:
        return {name: settings(name, table) for name in purpose.interfaces}
    except MachineError as error:
        raise Unreadable(str(error)) from None


def _one(table: str, name: str) -> Place:
    """A setting by itself, ``on`` or ``off``."""
    return _of_card(table, name, lambda told: told.get(name), lambda _told, value: {name: value})


def _splitting(told: Settings) -> dict[str, str]:
    """What the kernel and `ethtool` call tso in one word: some of it is off on most cards."""
    return {name: value for name, value in told.items() if _SPLITTING.fullmatch(name)}


def _splits(told: Settings) -> str | None:
    found = set(_splitting(told).values())
    return ("on" if "on" in found else "off") if found else None


def _no_splitting(told: Settings, _value: str) -> Settings:
    # One by one: `tso on` would switch on later what had been off.
    return {name: "off" for name, value in _splitting(told).items() if value == "on"}


def _waiting(side: str) -> Place:
    """Whether a card waits for more packets before it interrupts: ``off``, or for how long.

    Zero microseconds and zero packets would mean no interrupt at all. It is off with zero
    microseconds and one packet (include/linux/ethtool.h).
    """
    usecs, frames = f"{side}-usecs", f"{side}-frames"

    def value(told: Settings) -> str | None:
        if usecs not in told:
            return None
        packets = told.get(frames, "1")
        if told[usecs] == "0" and packets in ("0", "1"):
            return "off"
        return f"{told[usecs]} us" + ("" if packets in ("0", "1") else f", {packets} packets")

    def change(told: Settings, _value: str) -> Settings:
        many = told.get(frames, "1") not in ("0", "1")
        return {usecs: "0"} | ({frames: "1"} if many else {})

    return _of_card("coalesce", f"{side} coalescing", value, change)


def _queues(told: Settings) -> str | None:
    for name in ("combined", "rx"):
        if int(told.get(f"max {name}", "0")) > 1:
            return told.get(name)
    return None


def _fewer(told: Settings, count: str) -> Settings:
    name = "combined" if int(told.get("max combined", "0")) > 1 else "rx"
    return {name: count} if int(told[name]) > int(count) else {}


def _largest(told: Settings) -> str | None:
    if "rx" not in told or "max rx" not in told:
        return None
    return LARGEST if told["rx"] == told["max rx"] else f"{told['rx']} of {told['max rx']}"


def _spread(told: Settings) -> str | None:
    return told.get("equal") if int(told.get("max equal", "0")) > 1 else None


def _pause(told: Settings) -> str | None:
    sides = [side for side in ("rx", "tx") if told.get(side) == "on"]
    return (" and ".join(sides) or "off") if "rx" in told else None


def _no_pause(told: Settings, _value: str) -> Settings:
    # With negotiation the partner decides.
    return {name: "off" for name in ("autoneg", "rx", "tx") if name in told}


def _cores(purpose: Purpose, _tree: Tree) -> Wish:
    _ = purpose.isolated
    return Wish(str(len(purpose.cpus)), "at-most")


# A card spreads packets over fewer queues before it has fewer: it refuses the other way around, and
# all is put back in reverse.
row = partial(known, group="cards")

of_cards = partial(row, roles=HOST | {"vm-guest"})
"""Rows of what the sender of packets has no use for."""

ROWS = (
    row(
        "receive-steering",
        STEERING,
        _device_mask,
        "Packets of the device's cards are received on cores that are not the device's. An empty "
        "mask leaves them where the card interrupts.",
        f"{SCALING}: RPS; cluster node-tuning-operator",
    ),
    row(
        "other-steering",
        Place(
            "/sys/class/net/*/queues/rx-*/rps_cpus of other interfaces",
            lambda tree, purpose: STEERING.read(tree, _of_others(tree, purpose)),
            "mask",
            lambda tree, purpose, value: STEERING.changes(tree, _of_others(tree, purpose), value),
        ),
        others_mask,
        "Packets of other interfaces are received on the device's cores.",
        f"{SCALING}: RPS; cluster node-tuning-operator",
    ),
    row(
        "threaded-napi",
        Files(f"{CARD}/threaded", "number"),
        fixed("1"),
        "Packets are received by a kernel thread for each queue, which can be pinned and given a "
        "priority, but must be woken up.",
        f"{NAPI}: threaded",
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
    ),
    row(
        "flush-timeout",
        Files(f"{CARD}/gro_flush_timeout", "number"),
        fixed("0"),
        "Packets wait so many nanoseconds for others to be joined with, and deferred interrupts "
        "for a poll. Preferred busy polling (AF_XDP) needs more than lies between two polls of "
        "its program.",
        f"{NAPI}: software IRQ coalescing, busy polling; RTC-Testbench pull request 55",
    ),
    row(
        "card-power",
        Files(f"{CARD}/device/power/control"),
        fixed("on"),
        "A card that has nothing to do is put to sleep.",
        "Documentation/ABI/testing/sysfs-devices-power: control",
        roles=PHYSICAL,
        absent="the power of these cards is not managed",
    ),
    row(
        "link-power",
        Files("/sys/module/pcie_aspm/parameters/policy", "choice"),
        _link_power,
        "PCI links that are idle take microseconds to wake up.",
        "Documentation/admin-guide/kernel-parameters.txt: pcie_aspm.policy",
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
    ),
    row(
        "receive-backlog",
        Files("/proc/sys/net/core/netdev_max_backlog", "number"),
        fixed(Wish("10000", "at-least")),
        "Packets beyond so many that wait for a core are dropped, of veth and with steering. A "
        "longer queue loses less and is later.",
        "Documentation/admin-guide/sysctl/net.rst: netdev_max_backlog",
    ),
    row(
        "busy-poll",
        Files("/proc/sys/net/core/busy_poll", "number"),
        fixed(Wish("50", "at-least")),
        "A program that waits for sockets in poll or select looks at the card itself for so many "
        "microseconds. Forwarders in the kernel have no sockets.",
        "Documentation/admin-guide/sysctl/net.rst: busy_poll; tuned: profile network-latency",
    ),
    row(
        "busy-read",
        Files("/proc/sys/net/core/busy_read", "number"),
        fixed(Wish("50", "at-least")),
        "A program that reads a socket looks at the card itself for so many microseconds. "
        "Forwarders in the kernel have no sockets.",
        "Documentation/admin-guide/sysctl/net.rst: busy_read; tuned: profile network-latency",
    ),
    of_cards(
        "adaptive-receive",
        _one("coalesce", "adaptive-rx"),
        fixed("off"),
        "The driver chooses by recent traffic how long the card waits before it interrupts.",
        f"{NETLINK}: COALESCE_SET; {INTEL}, interrupt moderation",
    ),
    of_cards(
        "adaptive-send",
        _one("coalesce", "adaptive-tx"),
        fixed("off"),
        "The driver chooses by recent traffic how long the card waits to tell what it has sent.",
        f"{NETLINK}: COALESCE_SET; {INTEL}, interrupt moderation",
    ),
    of_cards(
        "receive-coalescing",
        _waiting("rx"),
        fixed("off"),
        "A received packet waits in the card until more have come or the time is over. Without "
        "that each packet may interrupt, and high rates cost more.",
        f"include/linux/ethtool.h: struct ethtool_coalesce; {INTEL}, interrupt moderation",
    ),
    of_cards(
        "send-coalescing",
        _waiting("tx"),
        fixed("off"),
        "Buffers of sent packets are given back late. That holds up only senders that wait for "
        "them, and interrupts cost all others.",
        "include/linux/ethtool.h: struct ethtool_coalesce",
    ),
    of_cards(
        "receive-spread",
        _of_card(
            "spread",
            "receive queues that packets are spread over",
            _spread,
            lambda _told, value: {"equal": value},
            "number",
        ),
        _cores,
        "Packets are spread over more queues than the device has cores, so that some arrive at "
        "others. No link goes down for this.",
        "Documentation/networking/scaling.rst: RSS; ethtool(8): --set-rxfh-indir",
    ),
    of_cards(
        "card-queues",
        _of_card("channels", "receive queues", _queues, _fewer, "number"),
        _cores,
        "Each queue has an interrupt. Where there are more of them than the device has cores, "
        "packets arrive at other cores.",
        "tuned: profile realtime, channels; Documentation/networking/scaling.rst",
    ),
    of_cards(
        "receive-ring",
        _of_card("rings", "receive ring", _largest, lambda told, _value: {"rx": told["max rx"]}),
        fixed(LARGEST),
        "Packets that find no room in the card's ring are lost. In a larger one fewer are, and "
        "they wait longer; it also takes more of the cache.",
        "ethtool(8): --set-ring; Red Hat Enterprise Linux 9, Monitoring and managing system status "
        "and performance: ring buffers",
    ),
    row(
        "receive-merging",
        _one("features", "gro"),
        fixed("off"),
        "The kernel joins packets of one connection that arrive together before it forwards them. "
        "That makes high rates cheaper, and bursts of what were single packets.",
        "Documentation/networking/segmentation-offloads.rst",
    ),
    row(
        "card-merging",
        _one("features", "lro"),
        fixed("off"),
        "The card joins packets of one connection. They cannot be taken apart again exactly, so "
        "that forwarding breaks.",
        "Documentation/networking/device_drivers/ethernet/wangxun/txgbe.rst",
    ),
    row(
        "card-splitting",
        _of_card("features", "tso", _splits, _no_splitting),
        fixed("off"),
        "A large packet leaves as a burst that others wait behind. Forwarders rarely have any.",
        "Documentation/networking/segmentation-offloads.rst",
    ),
    row(
        "pause-frames",
        _of_card("pause", "pause frames", _pause, _no_pause),
        fixed("off"),
        "A receiver that is behind stops the sender. Loss becomes waiting, on all flows of the "
        "link.",
        f"{NETLINK}: PAUSE_SET; IEEE 802.3, annex 31B",
    ),
    row(
        "link-sleep",
        _one("eee", "eee"),
        fixed("off"),
        "An idle link sleeps (Energy-Efficient Ethernet), and the next packet waits until both "
        "ends are awake.",
        f"{NETLINK}: EEE_SET; IEEE 802.3az",
    ),
)
