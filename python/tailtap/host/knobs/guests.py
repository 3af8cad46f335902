"""Virtual machines: what their host does to them, and what a guest can do itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

from tailtap.base.proc import ALLOWED, status
from tailtap.base.units import parse_cpus, ranges
from tailtap.host.changes.kernel_values import Wish
from tailtap.host.facts import machine as facts
from tailtap.host.knobs.frequency import Driven
from tailtap.host.knobs.knob import Files, Place, fixed, known, others
from tailtap.host.knobs.tree import Absent, Purpose, Role, Tree, Unreadable

GUEST: frozenset[Role] = frozenset(("vm-guest",))
HOST: frozenset[Role] = frozenset(("vm-host",))
PINNED = "one of the device's cores each"
_VIRTUAL_CORE = re.compile(r"CPU \d+/(KVM|TCG)")
POLLING = "Documentation/virt/guest-halt-polling.rst"


def _stolen(tree: Tree, _purpose: Purpose) -> Mapping[str, str]:
    """The share of all time since boot that the host took."""
    share = facts.steal_share(tree.root)
    if share is None:
        raise Unreadable("/proc/stat does not tell")
    return {"steal in /proc/stat": f"{share:.2%}"}


def _threads(tree: Tree, *, virtual: bool) -> Mapping[str, str]:
    """The CPUs that threads of QEMU may run on: virtual cores, or all its others.

    QEMU names its threads where it is told to (``debug-threads=on``), as libvirt does.
    """
    found: dict[str, str] = {}
    guests = 0
    for process in tree.glob("/proc/[0-9]*/comm"):
        if not (tree.look(process) or "").startswith("qemu-system"):
            continue
        names = {
            path: tree.look(path) or ""
            for path in tree.glob(f"{process.removesuffix('comm')}task/[0-9]*/comm")
        }
        if not any(map(_VIRTUAL_CORE.fullmatch, names.values())):
            continue
        guests += 1
        for path, name in names.items():
            cpus = status(path.removeprefix("/proc/").removesuffix("/comm"), tree.at("/proc")).get(
                ALLOWED
            )
            is_virtual = _VIRTUAL_CORE.fullmatch(name) is not None
            if cpus is not None and is_virtual == virtual:
                found[f"{name} ({path.split('/')[4]})"] = cpus
    if not guests:
        raise Absent("no virtual machine of QEMU with named threads runs")
    return found


def _pinned(tree: Tree, purpose: Purpose) -> Mapping[str, str]:
    """Whether each virtual core has one of the device's cores, and no two have the same."""
    found = _threads(tree, virtual=True)
    taken: dict[frozenset[int], int] = {}
    for cpus in found.values():
        cores = frozenset(parse_cpus(cpus))
        taken[cores] = taken.get(cores, 0) + 1
    wrong = [cores for cores, count in taken.items()
             if count > 1 or len(cores) > 1 or not cores <= set(purpose.cpus)]  # fmt: skip
    where = "Cpus_allowed_list of CPU n/KVM in /proc/*/task/*/status"
    told = ", ".join(sorted(ranges(cores) for cores in wrong))
    return {where: f"on {told}" if wrong else PINNED}


row = partial(known, group="guests")
ROWS = (
    row(
        "virtual-cores",
        Place("Cpus_allowed_list of CPU n/KVM in /proc/*/task/*/status", _pinned),
        fixed(PINNED),
        "The scheduler moves virtual cores between the host's, and lets them wait for each other.",
        "libvirt: domain XML format, CPU Tuning, vcpupin",
        roles=HOST,
    ),
    row(
        "emulator-threads",
        Place(
            "Cpus_allowed_list of QEMU's other threads in /proc/*/task/*/status",
            lambda tree, _purpose: _threads(tree, virtual=False),
            "cpus",
        ),
        others,
        "QEMU's own work, such as a guest's disks and timers, runs on the cores of virtual ones.",
        "libvirt: domain XML format, CPU Tuning, emulatorpin and iothreadpin",
        roles=HOST,
    ),
    row(
        "steal",
        Place("steal in /proc/stat, of all time since boot", _stolen, "percent"),
        fixed(Wish(f"{facts.STEAL_SHARE:.2%}", "at-most")),
        "The host runs something else on the core of a virtual one. Only the host can mend it, "
        "with a core for each virtual one.",
        "proc_stat(5): steal",
        roles=GUEST,
        elsewhere=True,
    ),
    row(
        "guest-halt-polling",
        Driven("/sys/module/haltpoll/parameters/guest_halt_poll_ns", "number", governor="haltpoll"),
        fixed(Wish("200000", "at-least")),
        "A guest's idle core polls so many nanoseconds before it halts, which takes a way through "
        "the host. The host sees a busy core, and other guests have less.",
        POLLING,
        roles=GUEST,
    ),
    row(
        "host-halt-polling",
        Files("/sys/module/kvm/parameters/halt_poll_ns", "number"),
        fixed(Wish("200000", "at-least")),
        "The host polls so many nanoseconds for work of a virtual core that has halted, before it "
        "gives the core to others.",
        "Documentation/virt/kvm/halt-polling.rst",
        roles=HOST,
        absent="KVM is not loaded",
    ),
    row(
        "huge-page-recovery",
        Files("/sys/module/kvm/parameters/nx_huge_pages_recovery_ratio", "number"),
        fixed("0"),
        "A kernel thread of each guest takes apart page tables, so that huge pages that were split "
        "come back. Without that split pages stay split.",
        "Documentation/admin-guide/hw-vuln/multihit.rst",
        roles=HOST,
        absent="KVM is not loaded",
    ),
)
