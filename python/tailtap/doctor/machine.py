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
from tailtap.base.errors import Check, MachineError, State, TailtapError
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
from tailtap.remote import CommandFailed

AREA = "machine"


def _judged(
    name: str, found: str, fine: bool, remedy: str, *, otherwise: State = "poor", area: str = AREA
) -> Check:
    """What was found is fine, or `remedy` mends it."""
    return Check(area, name, "ok", found) if fine else Check(area, name, otherwise, found, remedy)


def check_machine() -> Iterator[Check]:
    """Each property with what it means for measurements; none of them is required."""
    topology, governors = facts.topology(), facts.governors()
    online, isolated = facts.cpu_set("online"), facts.cpu_set("isolated")
    clock, guest, groups = facts.clocksource(), facts.under_hypervisor(), iommu_groups()
    cores = len(topology.cores)
    shared = next((core for core in topology.cores if "," in core or "-" in core), None)
    kinds = sorted({name for name in (governors or {}).values() if name})
    yield _judged(
        "CPUs",
        f"{cores} cores, online CPUs {online or 'unknown'}",
        cores >= 2,
        "generator and DuT need a core each: take a machine with two",
    )
    yield _judged(
        "SMT",
        f"on: CPUs {shared} share a core"
        if shared
        else f"no CPU shares a core ({facts.smt() or 'no control'})",
        shared is None,
        "siblings disturb each other: `echo off > /sys/devices/system/cpu/smt/control`",
    )
    yield _judged(
        "governor",
        "the frequency is not ours to set" if governors is None else ", ".join(kinds),
        governors is None or kinds == ["performance"],
        "set `performance`: a core that sleeps or clocks down answers late",
    )
    yield _judged(
        "isolated CPUs",
        isolated or "none",
        bool(isolated),
        "boot with isolcpus= and nohz_full= for the DuT's CPUs, for short tails",
    )
    yield _judged(
        "clock source",
        clock or "unknown",
        clock == "tsc",
        "a stamp is slow and coarse: boot with clocksource=tsc where the TSC is stable",
    )
    yield _judged(
        "hypervisor",
        "this is a virtual machine" if guest else "none" if guest is False else "unknown",
        not guest,
        "the host's scheduler adds to the tail: compare with `platform: wire`",
    )
    yield _steal()
    yield _control_groups()
    yield _judged(
        "IOMMU",
        f"{groups} groups" if groups else "none",
        groups > 0,
        f"for cards of DPDK's own drivers and of virtual machines: {NO_IOMMU}",
        otherwise="missing",
    )
    yield _energy(list(energy.counters()), energy.platform_watts())


def _control_groups() -> Check:
    """Which version limits what: a controller belongs to one of them at a time."""
    found: dict[int, set[str]] = {}
    for row in hierarchies():
        found.setdefault(row.version, set()).update(row.controllers)
    told = "; ".join(
        f"version {version}: {', '.join(sorted(names)) or 'no controller'}"
        for version, names in sorted(found.items())
    )
    return _judged(
        "control groups",
        told or "none",
        any("cpuset" in names for names in found.values()),
        "mount /sys/fs/cgroup with the controller cpuset, to measure in containers",
        otherwise="missing",
    )


def _steal() -> Check:
    share = facts.steal_share()
    if share is None:
        return Check(AREA, "steal time", "untested", "no /proc/stat")
    return _judged(
        "steal time",
        f"{100 * share:.3f} % of the time since boot",
        share <= facts.STEAL_SHARE,
        "the hypervisor takes CPUs away: ask for dedicated ones",
    )


def _energy(domains: list[str], platform: int | None) -> Check:
    found = ", ".join([*domains, *([] if platform is None else [f"IPMI: {platform} W"])])
    if found:
        return Check(AREA, "energy", "ok", found)
    if energy.closed():
        return Check(AREA, "energy", "untested", "only root may read it", "run it with sudo")
    remedy = "runs have no watts: take a machine with RAPL (CONFIG_INTEL_RAPL) or IPMI and ipmitool"
    return Check(AREA, "energy", "missing", "no sensor", remedy)


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
    described = Path("/sys/kernel/btf/vmlinux").exists()
    yield _judged(
        "BTF",
        "the kernel describes its types" if described else "no /sys/kernel/btf/vmlinux",
        described,
        "a kernel with CONFIG_DEBUG_INFO_BTF, to trace interrupts",
        otherwise="missing",
        area=KERNEL,
    )
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


def _locked_memory() -> Check:
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    unlimited = limit == resource.RLIM_INFINITY
    return _judged(
        "locked memory",
        "unlimited" if unlimited else f"{limit // 1024} KiB",
        unlimited or os.geteuid() == 0 or limit >= 64 * 2**20,
        "raise it: `ulimit -l unlimited`, or run it with sudo",
        area=KERNEL,
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
