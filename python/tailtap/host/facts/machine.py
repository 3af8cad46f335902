"""Facts about this machine, each read in one place: from the kernel's own files.

The environment of a run, `tailtap doctor` and the checks before a run all read them here. `root`
stands in for ``/`` in tests. What cannot be found out is None.
"""

from __future__ import annotations

import platform as python_platform
import re
from pathlib import Path

from tailtap.base.files import read_text
from tailtap.base.proc import names
from tailtap.records.machine import CpuCache, Interrupt, Topology

ROOT = Path("/")
CPUS = "sys/devices/system/cpu"
_CLOCK = "sys/devices/system/clocksource/clocksource0/current_clocksource"


def read(path: Path) -> str | None:
    """The content of a small file; None when it is missing, unreadable or empty."""
    return read_text(path) or None


def entries(folder: Path) -> list[Path]:
    """What a folder has, by name; nothing where it cannot be read."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def kernel_release(root: Path = ROOT) -> str:
    """The kernel's version, as ``uname -r`` prints it."""
    return read(root / "proc/sys/kernel/osrelease") or python_platform.release()


def kernel_at_least(version: tuple[int, int], root: Path = ROOT) -> bool:
    """Whether its version is this or a later one; for what nothing else on a machine shows."""
    found = re.match(r"(\d+)\.(\d+)", kernel_release(root))
    return found is not None and (int(found[1]), int(found[2])) >= version


def kernel_version(root: Path = ROOT) -> str:
    """How and when it was built, as ``uname -v`` prints it."""
    return read(root / "proc/sys/kernel/version") or python_platform.version()


def boot_id(root: Path = ROOT) -> str | None:
    """What tells this boot of the kernel from all others."""
    return read(root / "proc/sys/kernel/random/boot_id")


def is_realtime(root: Path = ROOT) -> bool:
    """Whether the kernel preempts nearly everywhere (CONFIG_PREEMPT_RT)."""
    return "PREEMPT_RT" in kernel_version(root) or read(root / "sys/kernel/realtime") == "1"


def preemption(root: Path = ROOT) -> str | None:
    """The preemption model: the kernel's switch shows the chosen one in parentheses."""
    switch = read(root / "sys/kernel/debug/sched/preempt")
    if switch is not None and (match := re.search(r"\((\w+)\)", switch)):
        return match[1]
    match = re.search(r"PREEMPT\w*", kernel_version(root))
    return match[0] if match else None


def command_line(root: Path = ROOT) -> str | None:
    """What the kernel was booted with."""
    return read(root / "proc/cmdline")


def cpu_set(name: str, root: Path = ROOT) -> str | None:
    """The CPUs in the kernel's file `name`, such as ``online``, ``isolated`` or ``nohz_full``."""
    return read(root / CPUS / name)


def rcu_threads(root: Path = ROOT) -> tuple[int, ...]:
    """The CPUs for which the kernel has a thread that runs their RCU callbacks.

    Newer kernels have one for every CPU as soon as the callbacks of one are offloaded.
    """
    found = (re.fullmatch(r"rcuo[a-z]*/(\d+)", name) for name in names(root / "proc").values())
    return tuple(sorted({int(match[1]) for match in found if match}))


def shows_kernel_threads(root: Path = ROOT) -> bool:
    """Whether /proc has the kernel's threads; that of a container may not."""
    return read(root / "proc/2/comm") == "kthreadd"


def smt(root: Path = ROOT) -> str | None:
    """What the switch of simultaneous multithreading says: ``on``, ``off``, ``notsupported``…"""
    return read(root / CPUS / "smt/control")


def governors(root: Path = ROOT) -> dict[str, str | None] | None:
    """The frequency governor of each CPU; None on machines without any."""
    found = {
        cpu.name.removeprefix("cpu"): read(cpu / "cpufreq/scaling_governor")
        for cpu in _numbered(root / CPUS, "cpu")
    }
    return found if any(found.values()) else None


def mitigations(root: Path = ROOT) -> dict[str, str | None] | None:
    """What the kernel does against each vulnerability of the CPU."""
    return {entry.name: read(entry) for entry in entries(root / CPUS / "vulnerabilities")} or None


def cpuinfo(field: str, root: Path = ROOT) -> str | None:
    """A field of the first CPU in ``/proc/cpuinfo``."""
    match = re.search(rf"^{field}\s*:[^\S\n]*(.*)$", read(root / "proc/cpuinfo") or "", re.M)
    return match[1].strip() if match else None


def cpu_flags(root: Path = ROOT) -> frozenset[str]:
    """What an x86 processor can do, in the kernel's words; none of other processors."""
    return frozenset((cpuinfo("flags", root) or "").split())


def under_hypervisor(root: Path = ROOT) -> bool | None:
    """Whether this is a virtual machine."""
    text = read(root / "proc/cpuinfo")
    return None if text is None else " hypervisor" in text


def clocksource(root: Path = ROOT) -> str | None:
    """What the kernel reads the time from."""
    return read(root / _CLOCK)


def memory(field: str, root: Path = ROOT) -> int | None:
    """A field of ``/proc/meminfo``, such as ``MemTotal`` or ``MemAvailable``, in bytes."""
    return _in_bytes(field, root / "proc/meminfo")


def _in_bytes(field: str, file: Path) -> int | None:
    match = re.search(rf"\b{field}:\s+(\d+) kB", read(file) or "")
    return int(match[1]) * 1024 if match else None


STEAL_SHARE = 0.001
"""A larger share of all time since boot is worth a word."""


def steal_share(root: Path = ROOT) -> float | None:
    """The share of all CPU time since boot that a hypervisor took; proc_stat(5)."""
    try:
        first = (read(root / "proc/stat") or "").splitlines()[0]
        ticks = [int(column) for column in first.split()[1:9]]
    except (IndexError, ValueError):
        return None
    return ticks[7] / max(1, sum(ticks)) if len(ticks) > 7 else 0.0


def interrupts(root: Path = ROOT) -> dict[str, Interrupt]:
    """Every numbered interrupt, its devices, and the CPUs it may go to."""
    names: dict[str, str] = {}
    for line in (read(root / "proc/interrupts") or "").splitlines():
        match = re.match(r"\s*(\d+):(?:\s+\d+)+\s+(.*)", line)
        if match:
            names[match[1]] = " ".join(match[2].split())
    return {
        number: Interrupt(name=name, cpus=read(root / "proc/irq" / number / "smp_affinity_list"))
        for number, name in names.items()
    }


def distribution(root: Path = ROOT) -> str | None:
    """The name of the operating system's release."""
    match = re.search(r'^PRETTY_NAME="?([^"\n]*)', read(root / "etc/os-release") or "", re.M)
    return match[1] if match else None


def topology(root: Path = ROOT) -> Topology:
    """Which logical CPUs share a core, a cache, a package, a NUMA node; sets as the kernel's.

    Of each node its memory in bytes, and how far it is from each node in the order of their
    numbers: 10 is itself, 20 twice as long to reach (ACPI's SLIT).
    """
    nodes = _numbered(root / "sys/devices/system/node", "node")
    cores: set[str] = set()
    packages: set[str] = set()
    caches: set[tuple[str, str, str, str]] = set()
    for cpu in _numbered(root / CPUS, "cpu"):
        cores.add(read(cpu / "topology/thread_siblings_list") or cpu.name.removeprefix("cpu"))
        packages.add(read(cpu / "topology/package_cpus_list") or "")
        for cache in _numbered(cpu / "cache", "index"):
            words = (read(cache / name) or "" for name in ("level", "type", "size"))
            level, kind, size = words
            caches.add((level, kind, size, read(cache / "shared_cpu_list") or ""))
    return Topology(
        cores=sorted(cores, key=_first_cpu),
        packages=sorted(packages - {""}, key=_first_cpu) or None,
        caches=[
            CpuCache(level=level, type=kind, size=size, cpus=cpus)
            for level, kind, size, cpus in sorted(
                caches, key=lambda row: (row[:2], _first_cpu(row[3]))
            )
        ],
        numa_nodes={_node(node): read(node / "cpulist") for node in nodes},
        node_memory={_node(node): _in_bytes("MemTotal", node / "meminfo") for node in nodes},
        node_distances={
            _node(node): [int(distance) for distance in (read(node / "distance") or "").split()]
            for node in nodes
        },
    )


def _node(folder: Path) -> str:
    return folder.name.removeprefix("node")


def device_of(nic: Path) -> Path:
    """The folder of the device behind an interface; of a virtio device that of what carries it."""
    device = (nic / "device").resolve()
    return device.parent if device.name.startswith("virtio") else device


def interrupt_numbers(device: Path) -> list[str]:
    """The interrupts of a device, ascending."""
    found = [entry.name for entry in entries(device / "msi_irqs")]
    # With messages that were never requested, `irq` still names one that may be another card's now.
    wired = read(device / "irq")
    return sorted(found or ([] if wired in (None, "0") else [str(wired)]), key=int)


def cgroup_versions(root: Path = ROOT) -> list[int] | None:
    """Which versions of control groups are mounted."""
    mounts = read(root / "proc/mounts")
    if mounts is None:
        return None
    kinds = {fields[2] for line in mounts.splitlines() if len(fields := line.split()) > 2}
    return [version for version, kind in ((1, "cgroup"), (2, "cgroup2")) if kind in kinds]


def physical_nics(root: Path = ROOT) -> list[Path]:
    """Folders in ``/sys/class/net`` of interfaces with a device behind them."""
    return [path for path in entries(root / "sys/class/net") if (path / "device").exists()]


def _numbered(folder: Path, prefix: str) -> list[Path]:
    """Entries such as ``cpu0``, ``cpu1`` in the order of their numbers."""
    return sorted(
        (entry for entry in entries(folder) if re.fullmatch(rf"{prefix}\d+", entry.name)),
        key=lambda entry: int(entry.name.removeprefix(prefix)),
    )


def _first_cpu(cpus: str) -> int:
    match = re.match(r"\d+", cpus)
    return int(match[0]) if match else -1
