"""Memory: what moves, merges, writes back or reclaims pages behind the device's back."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from tailtap.host.changes.kernel_values import Wish, chosen
from tailtap.host.knobs.knob import Files, Knob, Told, fixed
from tailtap.host.knobs.purpose import Purpose
from tailtap.host.knobs.tree import Absent, Tree

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


row = partial(Knob, group="memory")
ROWS = (
    row(
        "transparent-huge-pages",
        Files(f"{HUGE}/enabled", "choice"),
        fixed("never"),
        "The kernel joins pages to huge ones and stops whoever touches them meanwhile.",
        f"{LATENCY}; {TRANSPARENT}",
        removes=("page-fault", "tlb-flush"),
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
        removes=("page-fault",),
        absent="this kernel was built without TRANSPARENT_HUGEPAGE",
    ),
    row(
        "same-pages",
        Files("/sys/kernel/mm/ksm/run", "number"),
        _merging,
        "A kernel thread compares pages and merges equal ones: it uses a core, flushes TLBs, and "
        "the next write to such a page faults.",
        "Documentation/admin-guide/mm/ksm.rst; tuned: profile cpu-partitioning",
        removes=("kernel-thread", "tlb-flush", "page-fault"),
        absent="this kernel was built without KSM",
    ),
    row(
        "numa-balancing",
        Files("/proc/sys/kernel/numa_balancing", "number"),
        fixed("0"),
        "The kernel takes pages away to see who uses them, and moves them to the node that does.",
        f"Documentation/admin-guide/sysctl/kernel.rst; {LATENCY}",
        removes=("page-fault", "tlb-flush"),
        risk=0,
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
        removes=("page-fault", "kernel-thread"),
        risk=0,
        absent="this kernel does not compact memory by itself",
    ),
    row(
        "zone-reclaim",
        Files("/proc/sys/vm/zone_reclaim_mode", "number"),
        fixed("0"),
        "A node that is full reclaims its pages before memory of another node is used.",
        f"{VM}: zone_reclaim_mode",
        removes=("page-fault",),
        risk=0,
        absent="this kernel was built without NUMA",
    ),
    row(
        "watermarks",
        Files("/proc/sys/vm/watermark_scale_factor", "number"),
        fixed(Wish("100", "at-least")),
        "With little memory kept free, whoever asks for a page reclaims one first.",
        f"{VM}: watermark_scale_factor",
        removes=("page-fault",),
        recommended=False,
    ),
    row(
        "writeback",
        Files("/proc/sys/vm/dirty_background_ratio", "number"),
        _writing,
        "The kernel starts to write pages back when so many per cent of memory wait: rarely and "
        "much, or often and little.",
        f"{VM}: dirty_background_ratio; tuned: profile latency-performance",
        removes=("kernel-thread",),
        recommended=False,
    ),
    row(
        "swap",
        Told("/proc/swaps", _swaps),
        fixed("none"),
        "A page that was swapped out is read from a disk when it is touched.",
        "swapoff(8)",
        removes=("page-fault",),
        risk=2,
    ),
    row(
        "damon",
        Files(DAMON_ADMIN, "switch"),
        fixed("off"),
        "A kernel thread for each context samples memory at intervals of milliseconds, and may "
        "reclaim or move pages.",
        DAMON,
        removes=("kernel-thread", "page-fault"),
        since="5.18",
        absent="nobody has set up a kdamond by DAMON's files",
    ),
    row(
        "damon-modules",
        Files(DAMON_MODULES, "switch"),
        fixed("N"),
        "Modules that reclaim or sort pages by how they are used have such a thread of their own.",
        "Documentation/admin-guide/mm/damon/reclaim.rst",
        removes=("kernel-thread", "page-fault"),
        since="5.16",
        absent="this kernel has no module of DAMON",
    ),
)
