"""What a reader needs to know about this machine to repeat a measurement.

It is put together from `facts` and the programs' own words, anew for each run: tuning may change
from one to the next. What cannot be found out is None, never an error: a measurement does not fail
for want of a description.
"""

from __future__ import annotations

import functools
import platform as python_platform
import subprocess
from importlib import metadata
from pathlib import Path

from tailtap.host.facts import machine as facts
from tailtap.host.facts.machine import ROOT, read
from tailtap.records.machine import CpuFacts, Environment, Kernel, Nic

PROGRAMS = {"ip": ["ip", "-V"], "tc": ["tc", "-V"]}
"""Programs that take part in a measurement, and how each tells its version."""
DRIVER_SECONDS = 5.0


def describe(root: Path = ROOT) -> Environment:
    """The environment, for ``run.json``. `root` stands in for ``/`` in tests."""
    return Environment(
        hostname=python_platform.node() or None,
        boot_id=facts.boot_id(root),
        kernel=Kernel(
            release=facts.kernel_release(root),
            version=facts.kernel_version(root),
            machine=python_platform.machine(),
            command_line=facts.command_line(root),
            preemption=facts.preemption(root),
        ),
        distribution=facts.distribution(root),
        cpu=CpuFacts(
            model=facts.cpuinfo("model name", root),
            microcode=facts.cpuinfo("microcode", root),
            online=facts.cpu_set("online", root),
            isolated=facts.cpu_set("isolated", root),
            nohz_full=facts.cpu_set("nohz_full", root),
            smt=facts.smt(root),
            governors=facts.governors(root),
            mitigations=facts.mitigations(root),
            hypervisor=facts.under_hypervisor(root),
        ),
        topology=facts.topology(root),
        memory=facts.memory("MemTotal", root),
        cgroup_versions=facts.cgroup_versions(root),
        clocksource=facts.clocksource(root),
        interrupts=facts.interrupts(root),
        nics=nics(root),
        versions={**_versions(), "kernel": facts.kernel_release(root)},
    )


def nics(root: Path = facts.ROOT) -> list[Nic]:
    """The network cards."""
    return [_nic(path) for path in facts.physical_nics(root)]


@functools.cache
def _versions() -> dict[str, str | None]:
    programs = {name: next(iter(_output(command)), None) for name, command in PROGRAMS.items()}
    return {"tailtap": _tailtap_version(), "python": python_platform.python_version(), **programs}


def _nic(path: Path) -> Nic:
    told = dict(
        line.split(": ", 1) for line in _output(["ethtool", "-i", path.name]) if ": " in line
    )
    driver = told.get("driver")
    if driver is None:
        link = path / "device/driver"
        driver = link.resolve().name if link.exists() else None
    device = facts.device_of(path)
    return Nic(
        name=path.name,
        driver=driver,
        driver_version=told.get("version"),
        firmware=told.get("firmware-version") or None,
        bus=told.get("bus-info") or device.name,
        speed_mbit=_integer(read(path / "speed")),
        mtu=_integer(read(path / "mtu")),
        numa_node=_integer(read(device / "numa_node")),
        interrupts=facts.interrupt_numbers(device),
    )


def _tailtap_version() -> str | None:
    try:
        return metadata.version("tailtap")
    except metadata.PackageNotFoundError:
        return None


def _output(command: list[str]) -> list[str]:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=DRIVER_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []


def _integer(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
