"""What the kernel lets us do, found out by doing it."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

from tailtap.base.check import Check
from tailtap.base.errors import MachineError
from tailtap.host.facts.needs import missing_capabilities
from tailtap.lab.platforms import PLATFORMS, DutSpec, alike, build, graph_of
from tailtap.lab.topology.lab import Lab
from tailtap.remote import CommandFailed

AREA = "kernel"
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
            yield Check(AREA, name, "untested", found, "run it with sudo", required=True)
    yield _btf()
    yield _locked_memory()


def _privileges() -> Check:
    lacking = missing_capabilities()
    if os.geteuid() == 0 and not lacking:
        return Check(AREA, "privileges", "ok", "root with all capabilities", required=True)
    who = "root" if os.geteuid() == 0 else f"user {os.geteuid()}"
    found = f"{who} without {', '.join(lacking)}" if lacking else who
    return Check(AREA, "privileges", "missing", found, "run it with sudo", required=True)


def _check_lab() -> Iterator[Check]:
    try:
        platform = PLATFORMS["bare-metal"]
        spec = DutSpec((PROBE_CPU,), platform.Options())
        with Lab(graph_of(alike(platform, spec))) as lab:
            build(lab, alike(platform, spec))
            lab.wait_until_up()
    except CommandFailed as error:
        remedy = "a kernel with CONFIG_NET_NS and CONFIG_VETH; the package iproute2"
        yield Check(AREA, "namespaces and veth", "missing", str(error), remedy, required=True)
        return
    except MachineError as error:
        remedy = "a kernel with CONFIG_RPS"
        yield Check(AREA, "receive steering", "missing", str(error), remedy, required=True)
        return
    found = "a lab was built and removed"
    yield Check(AREA, "namespaces and veth", "ok", found, required=True)
    found = f"a port's receive work was steered to CPU {PROBE_CPU}"
    yield Check(AREA, "receive steering", "ok", found, required=True)


def _btf() -> Check:
    if Path("/sys/kernel/btf/vmlinux").exists():
        return Check(AREA, "BTF", "ok", "the kernel describes its types")
    remedy = "a kernel with CONFIG_DEBUG_INFO_BTF, to trace interrupts"
    return Check(AREA, "BTF", "missing", "no /sys/kernel/btf/vmlinux", remedy)


def _locked_memory() -> Check:
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if limit == resource.RLIM_INFINITY:
        return Check(AREA, "locked memory", "ok", "unlimited")
    enough = os.geteuid() == 0 or limit >= 64 * 2**20
    remedy = "" if enough else "raise it: `ulimit -l unlimited`, or run it with sudo"
    return Check(AREA, "locked memory", "ok" if enough else "poor", f"{limit // 1024} KiB", remedy)
