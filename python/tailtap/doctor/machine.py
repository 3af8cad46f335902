"""CPUs, clocks and neighbours: what makes a machine good or bad at measuring tails."""

from __future__ import annotations

from collections.abc import Iterator

from tailtap.base.check import Check
from tailtap.host.containers.cgroups import hierarchies
from tailtap.host.facts import machine as facts
from tailtap.host.net.pci import NO_IOMMU, iommu_groups
from tailtap.lab.instruments import energy
from tailtap.records.machine import Topology

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
