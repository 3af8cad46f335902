"""What a reader needs to know about this machine to repeat a measurement.

Everything is read from ``/proc``, ``/sys`` and the programs' own words. What cannot be found out
is None, never an error: a measurement does not fail for want of a description.
"""

from __future__ import annotations

import os
import platform as python_platform
import re
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path("/")
PROGRAMS = {"ip": ["ip", "-V"], "tc": ["tc", "-V"]}
"""Programs that take part in a measurement, and how each tells its version."""
DRIVER_SECONDS = 5.0


def describe(root: Path = ROOT) -> dict[str, Any]:
    """The environment, for ``run.json``. `root` stands in for ``/`` in tests."""
    cpus = root / "sys/devices/system/cpu"
    cpuinfo = _read(root / "proc/cpuinfo") or ""
    return {
        "hostname": python_platform.node() or None,
        "kernel": {
            "release": python_platform.release(),
            "version": python_platform.version(),
            "machine": python_platform.machine(),
            "command_line": _read(root / "proc/cmdline"),
            "preemption": _preemption(root),
        },
        "distribution": _distribution(root),
        "cpu": {
            "model": _cpuinfo(cpuinfo, "model name"),
            "microcode": _cpuinfo(cpuinfo, "microcode"),
            "online": _read(cpus / "online"),
            "isolated": _read(cpus / "isolated"),
            "nohz_full": _read(cpus / "nohz_full"),
            "smt": _read(cpus / "smt/control"),
            "governors": _governors(cpus),
            "mitigations": _folder(cpus / "vulnerabilities"),
            "hypervisor": None if not cpuinfo else " hypervisor" in cpuinfo,
        },
        "topology": topology(root),
        "memory": _memory(root),
        "cgroup_versions": cgroup_versions(root),
        "clocksource": _read(
            root / "sys/devices/system/clocksource/clocksource0/current_clocksource"
        ),
        "interrupts": _interrupts(root),
        "nics": [_nic(path) for path in physical_nics(root)],
        "versions": {
            "tailtap": _tailtap_version(),
            "python": python_platform.python_version(),
            "kernel": python_platform.release(),
            **{name: _first_line(command) for name, command in PROGRAMS.items()},
        },
    }


def topology(root: Path = ROOT) -> dict[str, Any]:
    """Which logical CPUs share a core, a cache, a package, a NUMA node; sets as the kernel's."""
    base = root / "sys/devices/system"
    cores: set[str] = set()
    packages: set[str] = set()
    caches: set[tuple[str, str, str, str]] = set()
    for cpu in _numbered(base / "cpu", "cpu"):
        cores.add(_read(cpu / "topology/thread_siblings_list") or cpu.name.removeprefix("cpu"))
        packages.add(_read(cpu / "topology/package_cpus_list") or "")
        for cache in _numbered(cpu / "cache", "index"):
            words = (_read(cache / name) or "" for name in ("level", "type", "size"))
            level, kind, size = words
            caches.add((level, kind, size, _read(cache / "shared_cpu_list") or ""))
    return {
        "cores": sorted(cores, key=_first_cpu),
        "packages": sorted(packages - {""}, key=_first_cpu) or None,
        "caches": [
            {"level": level, "type": kind, "size": size, "cpus": cpus}
            for level, kind, size, cpus in sorted(
                caches, key=lambda row: (row[:2], _first_cpu(row[3]))
            )
        ],
        "numa_nodes": {
            node.name.removeprefix("node"): _read(node / "cpulist")
            for node in _numbered(base / "node", "node")
        },
    }


def cgroup_versions(root: Path = ROOT) -> list[int] | None:
    """Which versions of control groups are mounted."""
    mounts = _read(root / "proc/mounts")
    if mounts is None:
        return None
    kinds = {fields[2] for line in mounts.splitlines() if len(fields := line.split()) > 2}
    return [version for version, kind in ((1, "cgroup"), (2, "cgroup2")) if kind in kinds]


def physical_nics(root: Path = ROOT) -> list[Path]:
    """Folders in ``/sys/class/net`` of interfaces with a device behind them."""
    try:
        entries = sorted((root / "sys/class/net").iterdir())
    except OSError:
        return []
    return [path for path in entries if (path / "device").exists()]


def _nic(path: Path) -> dict[str, Any]:
    told = dict(
        line.split(": ", 1) for line in _output(["ethtool", "-i", path.name]) if ": " in line
    )
    driver = told.get("driver")
    if driver is None:
        link = path / "device/driver"
        driver = link.resolve().name if link.exists() else None
    return {
        "name": path.name,
        "driver": driver,
        "driver_version": told.get("version"),
        "firmware": told.get("firmware-version") or None,
        "bus": told.get("bus-info") or (path / "device").resolve().name,
        "speed_mbit": _integer(_read(path / "speed")),
        "mtu": _integer(_read(path / "mtu")),
        "numa_node": _integer(_read(path / "device/numa_node")),
    }


def _governors(cpus: Path) -> dict[str, str | None] | None:
    found = {
        cpu.name.removeprefix("cpu"): _read(cpu / "cpufreq/scaling_governor")
        for cpu in _numbered(cpus, "cpu")
    }
    return found if any(found.values()) else None


def _interrupts(root: Path) -> dict[str, dict[str, str | None]]:
    """Every numbered interrupt, its devices, and the CPUs it may go to."""
    names: dict[str, str] = {}
    for line in (_read(root / "proc/interrupts") or "").splitlines():
        match = re.match(r"\s*(\d+):(?:\s+\d+)+\s+(.*)", line)
        if match:
            names[match[1]] = " ".join(match[2].split())
    return {
        number: {"name": name, "cpus": _read(root / "proc/irq" / number / "smp_affinity_list")}
        for number, name in names.items()
    }


def _preemption(root: Path) -> str | None:
    """The preemption model: the kernel's switch shows the chosen one in parentheses."""
    switch = _read(root / "sys/kernel/debug/sched/preempt")
    if switch is not None and (match := re.search(r"\((\w+)\)", switch)):
        return match[1]
    match = re.search(r"PREEMPT\w*", python_platform.version())
    return match[0] if match else None


def _distribution(root: Path) -> str | None:
    match = re.search(r'^PRETTY_NAME="?([^"\n]*)', _read(root / "etc/os-release") or "", re.M)
    return match[1] if match else None


def _memory(root: Path) -> int | None:
    match = re.search(r"^MemTotal:\s+(\d+) kB", _read(root / "proc/meminfo") or "", re.M)
    return int(match[1]) * 1024 if match else None


def _tailtap_version() -> str | None:
    try:
        return metadata.version("tailtap")
    except metadata.PackageNotFoundError:
        return None


def _first_line(command: list[str]) -> str | None:
    lines = _output(command)
    return lines[0] if lines else None


def _output(command: list[str]) -> list[str]:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=DRIVER_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []


def _folder(path: Path) -> dict[str, str | None] | None:
    try:
        return {entry.name: _read(entry) for entry in sorted(path.iterdir())}
    except OSError:
        return None


def _numbered(folder: Path, prefix: str) -> list[Path]:
    """Entries such as ``cpu0``, ``cpu1`` in the order of their numbers."""
    pattern = re.compile(rf"{prefix}(\d+)$")
    try:
        names = [entry.name for entry in os.scandir(folder) if pattern.match(entry.name)]
    except OSError:
        return []
    return [folder / name for name in sorted(names, key=lambda name: int(name[len(prefix) :]))]


def _first_cpu(cpus: str) -> int:
    match = re.match(r"\d+", cpus)
    return int(match[0]) if match else -1


def _cpuinfo(text: str, field: str) -> str | None:
    match = re.search(rf"^{field}\s*:\s*(.*)$", text, re.M)
    return match[1].strip() if match else None


def _integer(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def _read(path: Path) -> str | None:
    """The content of a small file; None when it is missing, unreadable or empty."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None
