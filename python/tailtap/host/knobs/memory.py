"""What moves, merges, writes back or reclaims pages, and parts of the cache and of memory.

The latter are the device's cores' own part of the last cache and of the way to memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from tailtap.base.errors import MachineError
from tailtap.host.changes.kernel_values import Wish, chosen
from tailtap.host.changes.resource import Resource
from tailtap.host.cpu.resctrl import (
    CACHE_LINES,
    FOLDER,
    ResctrlMount,
    ResourceGroup,
    parse_schemata,
)
from tailtap.host.facts import machine as facts
from tailtap.host.knobs.knob import Files, Place, fixed, known
from tailtap.host.knobs.tree import HOST, Absent, Purpose, Tree

DAMON = "Documentation/admin-guide/mm/damon/usage.rst"
"""Threads called kdamond.N, which look through memory for what is used and move the rest."""

DAMON_MODULES = "/sys/module/damon_*/parameters/enabled"

DAMON_ADMIN = "/sys/kernel/mm/damon/admin/kdamonds/*/state"

HUGE = "/sys/kernel/mm/transparent_hugepage"

VM = "Documentation/admin-guide/sysctl/vm.rst"

TRANSPARENT = "Documentation/admin-guide/mm/transhuge.rst"

LATENCY = "tuned: profile network-latency"


def _swaps(tree: Tree, _purpose: Purpose) -> Mapping[str, str]:
    lines = tree.text("/proc/swaps").splitlines()[1:]
    return {"/proc/swaps": " ".join(line.split()[0] for line in lines if line.split()) or "none"}


def _writing(_purpose: Purpose, tree: Tree) -> Wish:
    # Each of the two sets the other to 0, which cannot be written back to the one in bytes.
    if tree.text("/proc/sys/vm/dirty_background_bytes") != "0":
        raise Absent("the limit is given in bytes")
    return Wish("3", "at-most")


def _merging(purpose: Purpose, _tree: Tree) -> Wish:
    # A host of virtual machines may have merged pages, which 2 takes apart and 0 leaves.
    return Wish("2", also=("0",)) if purpose.role == "vm-host" else Wish("0", also=("2",))


def _defragmenting(_purpose: Purpose, tree: Tree) -> Wish:
    sizes = tree.glob(f"{HUGE}/hugepages-*/enabled")
    joined = [chosen(tree.text(path)) for path in (f"{HUGE}/enabled", *sizes)]
    if set(joined) <= {"never", "inherit"} and joined[0] == "never":
        raise Absent(
            "the kernel makes no huge pages (transparent-huge-pages), so that no fault "
            "looks for one"
        )
    return Wish("never", also=("defer",))


row = partial(known, group="memory")

OWN, SHARED, UNUSED = "of their own", "shared", "shared, resctrl is not mounted"

LIMITED, UNLIMITED = "limited", "not limited"

OTHERS_PERCENT = 50
"""What cores beside the device's have of the memory's bandwidth; nobody says what is right."""

DOCUMENT = "Documentation/filesystems/resctrl.rst"

CPU = "/sys/devices/system/cpu"

Masks = Mapping[str, int]
"""The ways that a group may fill, a bit each, by the number of the cache."""


def _part(
    line: str, find: Callable[[Tree, Purpose], str], *, bandwidth: int | None = None
) -> Place:
    """What the device's cores have to themselves: ways of the last cache, or `bandwidth`."""
    place = f"{line} in {FOLDER}/*/schemata"

    def change(tree: Tree, purpose: Purpose, _value: str) -> Sequence[Resource]:
        group = ResourceGroup(
            purpose.isolated,
            _shares(tree, purpose),
            ways=bandwidth is None,
            bandwidth=bandwidth,
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

    return Place(place, lambda tree, purpose: {place: find(tree, purpose)}, change=change)


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
    if "cat_l3" not in facts.cpu_flags(tree.root):
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
    if "mba" not in facts.cpu_flags(tree.root):
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


ROWS = (
    row(
        "transparent-huge-pages",
        Files(f"{HUGE}/enabled", "choice"),
        fixed("never"),
        "The kernel joins pages to huge ones and stops whoever touches them meanwhile.",
        f"{LATENCY}; {TRANSPARENT}",
        does="Keeps the kernel from joining pages to huge ones while programs run.",
        word=lambda _purpose, _tree: "transparent_hugepage=never",
        absent="this kernel was built without TRANSPARENT_HUGEPAGE",
    ),
    row(
        "huge-page-defrag",
        Files(f"{HUGE}/defrag", "choice"),
        _defragmenting,
        "A page fault compacts memory until it has found a huge page.",
        TRANSPARENT,
        absent="this kernel was built without TRANSPARENT_HUGEPAGE",
    ),
    row(
        "same-pages",
        Files("/sys/kernel/mm/ksm/run", "number"),
        _merging,
        "A kernel thread compares pages and merges equal ones: it uses a core, flushes TLBs, and "
        "the next write to such a page faults.",
        "Documentation/admin-guide/mm/ksm.rst; tuned: profile cpu-partitioning",
        absent="this kernel was built without KSM",
    ),
    row(
        "numa-balancing",
        Files("/proc/sys/kernel/numa_balancing", "number"),
        fixed("0"),
        "The kernel takes pages away to see who uses them, and moves them to the node that does.",
        f"Documentation/admin-guide/sysctl/kernel.rst; {LATENCY}",
        does="Keeps the kernel from moving pages between NUMA nodes.",
        word=lambda _purpose, _tree: "numa_balancing=disable",
        absent="this kernel was built without NUMA_BALANCING",
    ),
    row(
        "compaction",
        Files("/proc/sys/vm/compaction_proactiveness", "number"),
        fixed("0"),
        "A kernel thread moves pages together before anybody needs huge ones.",
        f"{VM}: compaction_proactiveness",
        absent="this kernel does not compact memory by itself",
    ),
    row(
        "zone-reclaim",
        Files("/proc/sys/vm/zone_reclaim_mode", "number"),
        fixed("0"),
        "A node that is full reclaims its pages before memory of another node is used.",
        f"{VM}: zone_reclaim_mode",
        absent="this kernel was built without NUMA",
    ),
    row(
        "watermarks",
        Files("/proc/sys/vm/watermark_scale_factor", "number"),
        fixed(Wish("100", "at-least")),
        "With little memory kept free, whoever asks for a page reclaims one first.",
        f"{VM}: watermark_scale_factor",
    ),
    row(
        "writeback",
        Files("/proc/sys/vm/dirty_background_ratio", "number"),
        _writing,
        "The kernel starts to write pages back when so many per cent of memory wait: rarely and "
        "much, or often and little.",
        f"{VM}: dirty_background_ratio; tuned: profile latency-performance",
    ),
    row(
        "swap",
        Place("/proc/swaps", _swaps),
        fixed("none"),
        "A page that was swapped out is read from a disk when it is touched.",
        "swapoff(8)",
    ),
    row(
        "damon",
        Files(DAMON_ADMIN, "switch"),
        fixed("off"),
        "A kernel thread for each context samples memory at intervals of milliseconds, and may "
        "reclaim or move pages.",
        DAMON,
        since="5.18",
        absent="nobody has set up a kdamond by DAMON's files",
    ),
    row(
        "damon-modules",
        Files(DAMON_MODULES, "switch"),
        fixed("N"),
        "Modules that reclaim or sort pages by how they are used have such a thread of their own.",
        "Documentation/admin-guide/mm/damon/reclaim.rst",
        since="5.16",
        absent="this kernel has no module of DAMON",
    ),
    row(
        "cache-ways",
        _part("L3", _ways),
        fixed(OWN),
        "Other cores displace the device's data from the last cache. With ways of their own, as "
        "many as their share of the cores, the device's cores fill no others.",
        f"how-low-can-you-go, section 4.1: Intel CAT; {DOCUMENT}",
        roles=HOST,
    ),
    row(
        "memory-bandwidth",
        _part("MB", _bandwidth, bandwidth=OTHERS_PERCENT),
        fixed(LIMITED),
        "Other cores use up what the memory can transfer. They have at most half of it then, by "
        "the processor's own estimate, and are slower for it.",
        f"{DOCUMENT}: Memory bandwidth Allocation",
        roles=HOST,
    ),
)
