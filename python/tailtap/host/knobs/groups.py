"""Control groups of other programs, whose processes are kept off the device's cores.

The group that this process is in is left as it is: what it starts has to reach those cores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tailtap.host.changes.journal import is_ours
from tailtap.host.changes.kernel_values import Form, KernelValue, Wish
from tailtap.host.changes.resource import Resource
from tailtap.host.changes.systemd import RUNNING, SliceCpus
from tailtap.host.containers.cgroups import having
from tailtap.host.knobs.knob import Knob
from tailtap.host.knobs.purpose import Purpose
from tailtap.host.knobs.tree import Absent, Tree

UNITS = ("system.slice", "user.slice", "init.scope")
"""Where systemd puts services, people, and itself. Slices of machines are not touched: they have
the device where it is a virtual machine or a container.
"""
_CGROUPS = "Documentation/admin-guide/cgroup-v2.rst: cpuset.cpus"


def _within(purpose: Purpose, _tree: Tree) -> Wish:
    return Wish(purpose.others, "within")


def _top(tree: Tree, version: int) -> str:
    """The root of the hierarchy that has the CPUs of groups."""
    found = having("cpuset", tree.root)
    if found is None or found.version != version:
        raise Absent(f"control groups of version {version} have no CPUs here")
    return f"/{found.path.relative_to(tree.root)}"


def _own(tree: Tree, version: int) -> str:
    """The group of this process, from the root of a hierarchy; proc_pid_cgroup(5)."""
    for line in (tree.look("/proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if (version == 2 and not controllers) or (version == 1 and controllers == "cpuset"):
            return path
    return "/"


def partitioned(tree: Tree) -> set[int]:
    """The CPUs that groups of version 2 keep out of load balancing while the machine runs.

    The root says so since Linux 6.7, and before that only each partition that is valid.
    """
    told = "/sys/fs/cgroup/cpuset.cpus.isolated"
    if tree.exists(told):
        return set(tree.cpus(told))
    return {
        cpu
        for path in tree.glob("/sys/fs/cgroup/**/cpuset.cpus.partition")
        if tree.look(path) == "isolated"
        for cpu in tree.cpus(path.replace("cpus.partition", "cpus.effective"))
    }


@dataclass(frozen=True)
class Slices:
    """The CPUs of systemd's units, in the hierarchy of version 2."""

    form: Form = "cpus"
    settable: bool = True
    place: str = f"AllowedCPUs of {', '.join(UNITS)}"

    def read(self, tree: Tree, purpose: Purpose) -> Mapping[str, str]:
        if not tree.exists(RUNNING):
            raise Absent("systemd does not run here")
        top = _top(tree, 2)
        online = tree.text("/sys/devices/system/cpu/online")
        own = _own(tree, 2).split("/")[1]
        found = {
            unit: tree.look(f"{top}/{unit}/cpuset.cpus.effective") or online
            for unit in UNITS
            if unit != own and tree.exists(f"{top}/{unit}")
        }
        if not found:
            raise Absent("there is no slice but that of this process")
        return found

    def changes(self, tree: Tree, purpose: Purpose, value: str) -> Sequence[Resource]:
        return [SliceCpus(list(self.read(tree, purpose)), value)]


@dataclass(frozen=True)
class Groups:
    """The CPUs of groups in the hierarchy of version 1, which systemd does not look after."""

    form: Form = "cpus"
    settable: bool = True
    place: str = "cpuset.cpus of other groups (version 1)"

    def read(self, tree: Tree, purpose: Purpose) -> Mapping[str, str]:
        top = _top(tree, 1)
        own = f"{top}{_own(tree, 1)}/"
        found = {
            path: text
            for path in tree.glob(f"{top}/**/cpuset.cpus")
            if not own.startswith(path.removesuffix("cpuset.cpus"))
            if not is_ours(path[len(top) :].split("/")[1])
            if (text := tree.look(path))
        }
        if not found:
            raise Absent("there is no other group with CPUs")
        return found

    def changes(self, tree: Tree, purpose: Purpose, value: str) -> Sequence[Resource]:
        """A resource for each depth, the deepest first: a group has what those below it have."""
        wish = Wish(value, "within")
        depths: dict[int, list[str]] = {}
        for path, text in self.read(tree, purpose).items():
            if not wish.holds(text, self.form):
                depths.setdefault(path.count("/"), []).append(path)
        return [
            KernelValue(depths[depth], value, self.form, root=str(tree.root))
            for depth in sorted(depths, reverse=True)
        ]


row = partial(Knob, group="scheduling")
ROWS = (
    row(
        "slices",
        Slices(),
        _within,
        "Services and people's programs run on the device's cores. A device that is itself one of"
        " them moves, too.",
        f"systemd.resource-control(5): AllowedCPUs; {_CGROUPS}",
        removes=("task",),
        recommended=False,
    ),
    row(
        "groups",
        Groups(),
        _within,
        "Containers and services in groups of their own run on the device's cores.",
        "Documentation/admin-guide/cgroup-v1/cpusets.rst; cpuset(7)",
        removes=("task",),
        recommended=False,
    ),
)
