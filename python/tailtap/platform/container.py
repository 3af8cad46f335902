"""`container`: the DuT is a container of LXC, as lean as one can be.

It shares this machine's kernel. Its ports, links of the lab or network cards, are moved into its
network namespace, as the papers do; its memory and CPUs are limited by control groups of the
version that the experiment chooses, and everything that is set is read back.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from tailtap.errors import MachineError
from tailtap.findings import Findings
from tailtap.host import cgroups, lxc
from tailtap.host.container import ContainerHost
from tailtap.host.cpus import list_cpus, parse_cpus
from tailtap.host.local import LocalHost, require_program
from tailtap.platform import boot
from tailtap.platform.dut import Dut, Wanted
from tailtap.platform.kernel import check_host_kernel
from tailtap.platform.roots import ROOTS, Root
from tailtap.topology.lab import DUT_EGRESS, DUT_INGRESS, Cables, Lab
from tailtap.units import format_size

ROLE = "dut"
MIN_MEMORY = 32 * 2**20
"""With less than this, commands that set up a forwarder are killed for want of memory."""
PAGE = 4096
"""The kernel rounds limits of memory to pages, of at most this size where it matters."""
PARTITIONS = ("isolated", "root")
"""Kinds of partitions of CPUs, the better one first; Documentation/admin-guide/cgroup-v2.rst."""


class Container:
    """A container with a root file system of its own, limited to the DuT's CPUs."""

    has_dut = True
    own_kernel = False
    uses: Set[str] = frozenset({"memory", "cgroup", "kernel", "boot", "root", "ports"})

    def foresee(
        self, wanted: Wanted, cables: Cables | None, programs: Sequence[str], findings: Findings
    ) -> None:
        """Find out whether this machine was booted so, has LXC, and can limit it."""
        findings.ask(check_host_kernel, wanted.kernel)
        findings.ask(boot.require_of_host, wanted.boot, wanted.boot_without, wanted.cpus)
        findings.ask(require_program, "lxc-start")
        root = ROOTS[wanted.root or "host"]
        root.foresee(programs, findings)
        findings.ask(_Limits, wanted, root)

    def build(self, lab: Lab, wanted: Wanted) -> Dut:
        """Start the container, move the ports into it, and read back what limits it."""
        kernel = check_host_kernel(wanted.kernel)
        booted = boot.require_of_host(wanted.boot, wanted.boot_without, wanted.cpus)
        name = lab.name_of(ROLE)
        root = ROOTS[wanted.root or "host"]
        limits = _Limits(wanted, root)
        lab.journal.add("container", name)
        began = time.monotonic_ns()
        spec = lxc.Spec(
            name, root.lower(), root.init, limits.settings(), root.shared(), root.files()
        )
        pid = lab.keep(lxc.running(spec))
        started = time.monotonic_ns() - began
        applied = limits.applied(name)
        namespace = lab.attach_namespace(ROLE, pid)
        lab.connect(namespace, wanted.cpus)
        host = ContainerHost(name, wanted.cpus)
        root.wait_until_ready(host)
        facts = {
            "name": name,
            "lxc": LocalHost().run(["lxc-start", "--version"]).stdout.strip(),
            "root": wanted.root or "host",
            "start_ns": started,
            "kernel": kernel,
            "boot": booted,
            "cgroup": applied,
            "init_cpus": _allowed(pid),
            **lab.facts(),
        }
        return Dut(host, DUT_INGRESS, DUT_EGRESS, wanted.cpus, wanted.both_ways, facts)


class _Limits:
    """What the control groups of a container are told, and what they say then."""

    def __init__(self, wanted: Wanted, root: Root) -> None:
        """Raises `MachineError` when this machine cannot limit it so."""
        self._cpus = tuple(sorted({*wanted.cpus, *root.service_cpus}))
        self._alone = not root.service_cpus
        self._memory = wanted.memory
        self._cpuset = cgroups.require("cpuset", wanted.cgroup)
        self._memories: cgroups.Hierarchy | None = None
        if wanted.memory is not None:
            _require_memory(wanted.memory)
            self._memories = cgroups.require("memory", wanted.cgroup)

    def settings(self) -> dict[str, str]:
        """The limits as LXC's configuration has them."""
        settings = {_key(self._cpuset, "cpuset.cpus"): list_cpus(self._cpus)}
        if self._cpuset.version == 1:
            settings[_key(self._cpuset, "cpuset.sched_load_balance")] = "0"
        if self._memories is not None:
            settings[_key(self._memories, _memory_file(self._memories))] = str(self._memory)
        return settings

    def applied(self, name: str) -> dict[str, Any]:
        """What the kernel says of each limit. Raises `MachineError` when it is not what was set."""
        group = self._cpuset.group(name)
        files: dict[str, str | None] = {}
        if self._cpuset.version == 2 and self._alone:
            files["cpuset.cpus.partition"] = _partition(group)
        names = ("cpuset.cpus", "cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.mems")
        for file in (*names, "cpuset.sched_load_balance"):
            content = cgroups.read(group / file)
            if content is not None:
                files[file] = content
        if parse_cpus(files.get("cpuset.cpus") or "") != self._cpus:
            raise MachineError(
                f"the container should be limited to CPUs {list_cpus(self._cpus)}, but "
                f"{group}/cpuset.cpus says {files.get('cpuset.cpus') or 'nothing'}"
            )
        facts: dict[str, Any] = {
            "cpuset": {"version": self._cpuset.version, "path": str(group), **files}
        }
        if self._cpuset.version == 1:
            # Its root decides: while that balances, it balances over all CPUs; cpuset(7).
            facts["cpuset"]["root_sched_load_balance"] = cgroups.read(
                self._cpuset.path / "cpuset.sched_load_balance"
            )
        if self._memories is not None:
            facts["memory"] = self._applied_memory(self._memories, name)
        return facts

    def _applied_memory(self, hierarchy: cgroups.Hierarchy, name: str) -> dict[str, Any]:
        assert self._memory is not None
        file = _memory_file(hierarchy)
        said = cgroups.read(hierarchy.group(name) / file)
        if said is None or not said.isdigit() or abs(int(said) - self._memory) >= PAGE:
            raise MachineError(
                f"the container should be limited to {self._memory} bytes of memory, but "
                f"{hierarchy.group(name)}/{file} says {said or 'nothing'}"
            )
        return {
            "version": hierarchy.version,
            "path": str(hierarchy.group(name)),
            file: int(said),
        }


def _key(hierarchy: cgroups.Hierarchy, file: str) -> str:
    return f"lxc.cgroup.{file}" if hierarchy.version == 1 else f"lxc.cgroup2.{file}"


def _memory_file(hierarchy: cgroups.Hierarchy) -> str:
    return "memory.limit_in_bytes" if hierarchy.version == 1 else "memory.max"


def _partition(group: Path) -> str | None:
    """Make the group's CPUs a scheduling domain of their own, as far as this kernel does it.

    What the kernel says of it then; None for a kernel without partitions (before 5.0).
    """
    file = group / "cpuset.cpus.partition"
    said = cgroups.read(file)
    if said is None:
        return None
    for kind in PARTITIONS:
        with contextlib.suppress(OSError):
            file.write_text(kind, encoding="ascii")
            said = cgroups.read(file)
            if said == kind:
                return said
    with contextlib.suppress(OSError):
        file.write_text("member", encoding="ascii")
    return said


def _require_memory(wanted: int) -> None:
    if wanted < MIN_MEMORY:
        raise MachineError(
            f"dut.memory: {format_size(wanted)} is too little for a container: give it "
            f"{format_size(MIN_MEMORY)} or more"
        )
    free = _free_memory()
    if free is not None and wanted > free:
        raise MachineError(
            f"dut.memory: {format_size(wanted)} is wanted, and this machine has "
            f"{format_size(free)} free: take less"
        )


def _free_memory() -> int | None:
    fields = _fields(Path("/proc/meminfo"))
    words = fields.get("MemAvailable", "").split()
    return int(words[0]) * 1024 if words else None


def _allowed(pid: int) -> str | None:
    """The CPUs that the container's first process, and so its services, may run on."""
    return _fields(Path(f"/proc/{pid}/status")).get("Cpus_allowed_list")


def _fields(path: Path) -> Mapping[str, str]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}
