"""What this machine can do: its kernel, CPUs, clocks, neighbours and network cards.

What the kernel lets us do is found out by doing it. The rest makes a machine good or bad at
measuring tails: which cards can stamp every packet in hardware or have virtual functions, say.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

from tailtap.base.bugs import foreseen
from tailtap.base.check import Check
from tailtap.base.errors import MachineError, TailtapError
from tailtap.host.containers.cgroups import hierarchies
from tailtap.host.facts import machine as facts
from tailtap.host.facts.machine import physical_nics
from tailtap.host.facts.needs import missing_capabilities
from tailtap.host.net.nic import Timestamping, timestamping
from tailtap.host.net.pci import NO_IOMMU, iommu_groups
from tailtap.host.net.virtual_functions import Ability
from tailtap.lab.instruments import energy
from tailtap.lab.instruments.taps.hardware import judge
from tailtap.lab.platforms import PLATFORMS, DutSpec, alike, build, graph_of
from tailtap.lab.topology.lab import Lab
from tailtap.records.machine import Topology
from tailtap.remote import CommandFailed

AREA = "machine"


def check_machine() -> Iterator[Check]:
    """Each property with what it means for measurements; none of them is required."""
    topology = facts.topology()
    yield _cpus(topology, facts.cpu_set("online"))
    yield _smt(topology, facts.smt())
    yield _governor(facts.governors())
    yield _isolation(facts.cpu_set("isolated"))
    yield _clocksource(facts.clocksource())
    yield _hypervisor(facts.under_hypervisor())
    yield _steal()
    yield _control_groups()
    yield _iommu()
    yield _energy(list(energy.counters()), energy.platform_watts())


def _cpus(topology: Topology, online: str | None) -> Check:
    cores = len(topology.cores)
    found = f"{cores} cores, online CPUs {online or 'unknown'}"
    if cores >= 2:
        return Check(AREA, "CPUs", "ok", found)
    remedy = "generator and DuT need a core each: take a machine with two"
    return Check(AREA, "CPUs", "poor", found, remedy)


def _smt(topology: Topology, control: str | None) -> Check:
    shared = [core for core in topology.cores if "," in core or "-" in core]
    if shared:
        remedy = "siblings disturb each other: `echo off > /sys/devices/system/cpu/smt/control`"
        return Check(AREA, "SMT", "poor", f"on: CPUs {shared[0]} share a core", remedy)
    return Check(AREA, "SMT", "ok", f"no CPU shares a core ({control or 'no control'})")


def _governor(governors: dict[str, str | None] | None) -> Check:
    if governors is None:
        return Check(AREA, "governor", "ok", "the frequency is not ours to set")
    kinds = sorted({name for name in governors.values() if name})
    if kinds == ["performance"]:
        return Check(AREA, "governor", "ok", "performance")
    remedy = "set `performance`: a core that sleeps or clocks down answers late"
    return Check(AREA, "governor", "poor", ", ".join(kinds), remedy)


def _isolation(isolated: str | None) -> Check:
    if isolated:
        return Check(AREA, "isolated CPUs", "ok", isolated)
    remedy = "boot with isolcpus= and nohz_full= for the DuT's CPUs, for short tails"
    return Check(AREA, "isolated CPUs", "poor", "none", remedy)


def _clocksource(name: str | None) -> Check:
    if name == "tsc":
        return Check(AREA, "clock source", "ok", "tsc")
    remedy = "a stamp is slow and coarse: boot with clocksource=tsc where the TSC is stable"
    return Check(AREA, "clock source", "poor", name or "unknown", remedy)


def _hypervisor(under: bool | None) -> Check:
    if under:
        remedy = "the host's scheduler adds to the tail: compare with `platform: wire`"
        return Check(AREA, "hypervisor", "poor", "this is a virtual machine", remedy)
    return Check(AREA, "hypervisor", "ok", "none" if under is False else "unknown")


def _control_groups() -> Check:
    """Which version limits what: a controller belongs to one of them at a time."""
    found: dict[int, set[str]] = {}
    for row in hierarchies():
        found.setdefault(row.version, set()).update(row.controllers)
    told = "; ".join(
        f"version {version}: {', '.join(sorted(names)) or 'no controller'}"
        for version, names in sorted(found.items())
    )
    if any("cpuset" in names for names in found.values()):
        return Check(AREA, "control groups", "ok", told)
    remedy = "mount /sys/fs/cgroup with the controller cpuset, to measure in containers"
    return Check(AREA, "control groups", "missing", told or "none", remedy)


def _iommu() -> Check:
    groups = iommu_groups()
    if groups:
        return Check(AREA, "IOMMU", "ok", f"{groups} groups")
    remedy = f"for cards of DPDK's own drivers and of virtual machines: {NO_IOMMU}"
    return Check(AREA, "IOMMU", "missing", "none", remedy)


def _steal() -> Check:
    share = facts.steal_share()
    if share is None:
        return Check(AREA, "steal time", "untested", "no /proc/stat")
    found = f"{100 * share:.3f} % of the time since boot"
    if share <= facts.STEAL_SHARE:
        return Check(AREA, "steal time", "ok", found)
    remedy = "the hypervisor takes CPUs away: ask for dedicated ones"
    return Check(AREA, "steal time", "poor", found, remedy)


def _energy(domains: list[str], platform: int | None) -> Check:
    found = ", ".join([*domains, *([] if platform is None else [f"IPMI: {platform} W"])])
    if found:
        return Check(AREA, "energy", "ok", found)
    if energy.closed():
        return Check(AREA, "energy", "untested", "only root may read it", "run it with sudo")
    remedy = "runs have no watts: take a machine with RAPL (CONFIG_INTEL_RAPL) or IPMI and ipmitool"
    return Check(AREA, "energy", "missing", "nothing here tells it", remedy)


KERNEL = "kernel"

PROBE_CPU = 0


def check_kernel() -> Iterator[Check]:
    """Privileges, then everything that ``tailtap run`` asks of the kernel."""
    privileged = _privileges()
    yield privileged
    if privileged.state == "ok":
        yield from _check_lab()
    else:
        for name in ("namespaces and veth", "receive steering"):
            found = "only root can try it"
            yield Check(KERNEL, name, "untested", found, "run it with sudo", required=True)
    yield _btf()
    yield _locked_memory()


def _privileges() -> Check:
    lacking = missing_capabilities()
    if os.geteuid() == 0 and not lacking:
        return Check(KERNEL, "privileges", "ok", "root with all capabilities", required=True)
    who = "root" if os.geteuid() == 0 else f"user {os.geteuid()}"
    found = f"{who} without {', '.join(lacking)}" if lacking else who
    return Check(KERNEL, "privileges", "missing", found, "run it with sudo", required=True)


def _check_lab() -> Iterator[Check]:
    try:
        platform = PLATFORMS["bare-metal"]
        spec = DutSpec((PROBE_CPU,), platform.Options())
        with Lab(graph_of(alike(platform, spec))) as lab:
            build(lab, alike(platform, spec))
            lab.wait_until_up()
    except CommandFailed as error:
        remedy = "a kernel with CONFIG_NET_NS and CONFIG_VETH; the package iproute2"
        yield Check(KERNEL, "namespaces and veth", "missing", str(error), remedy, required=True)
        return
    except MachineError as error:
        remedy = "a kernel with CONFIG_RPS"
        yield Check(KERNEL, "receive steering", "missing", str(error), remedy, required=True)
        return
    found = "a lab was built and removed"
    yield Check(KERNEL, "namespaces and veth", "ok", found, required=True)
    found = f"a port's receive work was steered to CPU {PROBE_CPU}"
    yield Check(KERNEL, "receive steering", "ok", found, required=True)


def _btf() -> Check:
    if Path("/sys/kernel/btf/vmlinux").exists():
        return Check(KERNEL, "BTF", "ok", "the kernel describes its types")
    remedy = "a kernel with CONFIG_DEBUG_INFO_BTF, to trace interrupts"
    return Check(KERNEL, "BTF", "missing", "no /sys/kernel/btf/vmlinux", remedy)


def _locked_memory() -> Check:
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if limit == resource.RLIM_INFINITY:
        return Check(KERNEL, "locked memory", "ok", "unlimited")
    enough = os.geteuid() == 0 or limit >= 64 * 2**20
    remedy = "" if enough else "raise it: `ulimit -l unlimited`, or run it with sudo"
    return Check(
        KERNEL, "locked memory", "ok" if enough else "poor", f"{limit // 1024} KiB", remedy
    )


NICS = "network cards"


def check_nics() -> Iterator[Check]:
    """The checks of each interface with a device behind it."""
    nics = physical_nics()
    if not nics:
        yield Check(NICS, "timestamping", "missing", "there is no physical network card")
    for nic in nics:
        try:
            yield check(timestamping(nic.name))
        except (TailtapError, ModuleNotFoundError) as error:  # a Python that lacks a part
            why = str(foreseen(error))
            yield Check(NICS, nic.name, "untested", "hardware timestamps unknown", why)
        yield from check_functions(Ability.of(nic.name))


def check_functions(able: Ability) -> Iterator[Check]:
    """The check of a card that can have virtual functions; nothing of others."""
    if able.total == 0:
        return
    name, found = f"{able.interface}: SR-IOV", f"{able.total} virtual functions for dut.over"
    try:
        able.require(1)
        able.require_driver()
    except MachineError as error:
        yield Check(NICS, name, "poor", found, str(error))
    else:
        yield Check(NICS, name, "ok", found)


def check(answer: Timestamping) -> Check:
    """The check of an interface from what it told about itself."""
    verdict = judge(answer)
    # A clock alone stamps nothing that is received.
    clock = "" if answer.clock is None or verdict.method else f", clock /dev/ptp{answer.clock}"
    kinds = ", ".join(answer.filters) or "none"
    if verdict.method is not None:
        found = f"{verdict.reason}; filters {kinds}"
        if verdict.is_known:
            return Check(NICS, answer.interface, "ok", found)
        link = f"in={answer.interface}"
        trial = f"tailtap tap {link} --clock hardware --write in.stamps --packets 10"
        remedy = f"`{trial}` tries it, with packets of `tailtap generate` that come in"
        return Check(NICS, answer.interface, "untested", found, remedy)
    remedy = (
        "software taps serve; for --clock hardware take a card with the filter `all`: "
        "Intel E810, I225 or X550, NVIDIA ConnectX"
    )
    return Check(NICS, answer.interface, "poor", f"{verdict.reason}{clock}", remedy)
