"""The last cache and the way to memory: whether the device's cores have a part to themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from tailtap.base.errors import MachineError
from tailtap.host.changes.kernel_values import Form
from tailtap.host.changes.resource import Resource
from tailtap.host.cpu.resctrl import (
    CACHE_LINES,
    FOLDER,
    ResctrlMount,
    ResourceGroup,
    parse_schemata,
)
from tailtap.host.facts import machine as facts
from tailtap.host.knobs.knob import Knob, fixed
from tailtap.host.knobs.purpose import HOST, Purpose
from tailtap.host.knobs.tree import Absent, Tree

OWN, SHARED, UNUSED = "of their own", "shared", "shared, resctrl is not mounted"
LIMITED, UNLIMITED = "limited", "not limited"
OTHERS_PERCENT = 50
"""What cores beside the device's have of the memory's bandwidth; nobody says what is right."""
DOCUMENT = "Documentation/filesystems/resctrl.rst"
CPU = "/sys/devices/system/cpu"

Masks = Mapping[str, int]
"""The ways that a group may fill, a bit each, by the number of the cache."""


@dataclass(frozen=True)
class Part:
    """What the device's cores have to themselves: ways of the last cache, or bandwidth."""

    what: Literal["ways", "bandwidth"]
    form: Form = "text"
    settable: bool = True

    @property
    def place(self) -> str:
        return f"{'L3' if self.what == 'ways' else 'MB'} in {FOLDER}/*/schemata"

    def read(self, tree: Tree, purpose: Purpose) -> Mapping[str, str]:
        find = _ways if self.what == "ways" else _bandwidth
        return {self.place: find(tree, purpose)}

    def changes(self, tree: Tree, purpose: Purpose, value: str) -> Sequence[Resource]:
        group = ResourceGroup(
            purpose.isolated,
            _shares(tree, purpose),
            ways=self.what == "ways",
            bandwidth=OTHERS_PERCENT if self.what == "bandwidth" else None,
            root=str(tree.root),
        )
        found = group.read()
        if found is not None:
            try:
                group.wanted(found)
            except MachineError as error:
                raise Absent(str(error)) from None
            return [group]
        if not tree.is_live:
            raise Absent("nothing can be mounted on a recorded machine")
        if "resctrl" not in (tree.look("/proc/filesystems") or "").split():
            raise Absent("this kernel was built without resctrl (CONFIG_X86_CPU_RESCTRL)")
        return [ResctrlMount(), group]


def _cache_of(tree: Tree, cpu: int) -> str | None:
    return tree.look(f"{CPU}/cpu{cpu}/cache/index3/id")


def _shares(tree: Tree, purpose: Purpose) -> dict[str, list[int]]:
    """Of each last cache of the device's cores, how many of them fill it, and how many in all."""
    found: dict[str, list[int]] = {}
    for cpu in sorted({*tree.online, *purpose.cpus}):
        cache = _cache_of(tree, cpu)
        if cache is None:
            raise Absent("the kernel does not say which cores share a last cache")
        mine, everybody = found.get(cache, [0, 0])
        found[cache] = [mine + (cpu in purpose.cpus), everybody + 1]
    return {cache: share for cache, share in found.items() if share[0]}


def _groups(tree: Tree) -> list[str]:
    """The folders of all groups, the default one first; empty when nothing is mounted."""
    places = [f"{FOLDER}/schemata", *tree.glob(f"{FOLDER}/*/schemata")]
    return [path.rpartition("/")[0] for path in places if tree.exists(path)]


def _own_group(tree: Tree, cpu: int, groups: Sequence[str]) -> str:
    """The group that a core is in: the default one has those that no other has."""
    return next(
        (group for group in groups if group != FOLDER and cpu in tree.cpus(f"{group}/cpus_list")),
        FOLDER,
    )


def _apart(tree: Tree, purpose: Purpose, group: str) -> bool:
    """Whether a group has none of the other cores."""
    return group != FOLDER and set(purpose.housekeeping).isdisjoint(tree.cpus(f"{group}/cpus_list"))


def _masks(tree: Tree, group: str) -> Masks:
    """Of a folder; with code and data apart, the ways of both."""
    found: dict[str, int] = {}
    values = parse_schemata(tree.look(f"{group}/schemata") or "")
    for line in CACHE_LINES:
        for cache, mask in values.get(line, {}).items():
            found[cache] = found.get(cache, 0) | int(mask, 16)
    return found


def _hardware(tree: Tree) -> int:
    """The ways that devices fill, too."""
    files = (f"{FOLDER}/info/{line}/shareable_bits" for line in CACHE_LINES)
    return int(next((text for file in files if (text := tree.look(file))), "0"), 16)


def _ways(tree: Tree, purpose: Purpose) -> str:
    """Whether others fill ways that the device's cores fill; tasks' groups are left out."""
    _ = purpose.isolated
    if "cat_l3" not in (facts.cpuinfo("flags", tree.root) or "").split():
        raise Absent("the processor does not divide its last cache")
    groups = _groups(tree)
    if not groups:
        return UNUSED
    masks, hardware = {group: _masks(tree, group) for group in groups}, _hardware(tree)
    for cpu in purpose.cpus:
        cache, mine = _cache_of(tree, cpu), _own_group(tree, cpu, groups)
        ways = {number: mask for number, mask in masks[mine].items() if cache in (None, number)}
        others = [masks[group] for group in groups if group != mine]
        if not _apart(tree, purpose, mine) or any(
            mask & (hardware | other.get(number, 0))
            for number, mask in ways.items()
            for other in (*others, {})
        ):
            return SHARED
    return OWN


def _bandwidth(tree: Tree, purpose: Purpose) -> str:
    """Whether other cores are limited, while those of the device are not."""
    _ = purpose.isolated
    if "mba" not in (facts.cpuinfo("flags", tree.root) or "").split():
        raise Absent("the processor does not limit the bandwidth of cores")
    groups = _groups(tree)
    if not groups:
        return UNLIMITED
    limits = {
        group: parse_schemata(tree.look(f"{group}/schemata") or "").get("MB", {})
        for group in groups
    }
    if facts.cpuinfo("vendor_id", tree.root) != "GenuineIntel" or any(
        int(value) > 100 for limit in limits.values() for value in limit.values()
    ):
        raise Absent("bandwidth is not divided by per cent here")
    for cpu in purpose.cpus:
        cache, mine = _cache_of(tree, cpu), _own_group(tree, cpu, groups)
        if not _apart(tree, purpose, mine):
            return UNLIMITED
        own, others = (limits[group].get(cache or "", "100") for group in (mine, FOLDER))
        if int(own) < 100 or int(others) > OTHERS_PERCENT:
            return UNLIMITED
    return LIMITED


row = partial(Knob, group="memory")
ROWS = (
    row(
        "cache-ways",
        Part("ways"),
        fixed(OWN),
        "Other cores displace the device's data from the last cache. With ways of their own, as "
        "many as their share of the cores, the device's cores fill no others.",
        f"how-low-can-you-go, section 4.1: Intel CAT; {DOCUMENT}",
        removes=("own-work",),
        roles=HOST,
    ),
    row(
        "memory-bandwidth",
        Part("bandwidth"),
        fixed(LIMITED),
        "Other cores use up what the memory can transfer. They have at most half of it then, by "
        "the processor's own estimate, and are slower for it.",
        f"{DOCUMENT}: Memory bandwidth Allocation",
        removes=("own-work",),
        roles=HOST,
        recommended=False,
    ),
)
