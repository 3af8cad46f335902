"""What the kernel lets us do, found out by doing it."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tailtap.capture import TAPS
from tailtap.doctor.check import Check
from tailtap.errors import MachineError, TailtapError
from tailtap.forwarder.tc_mirred import CLASSIFIERS, install
from tailtap.host import CommandFailed
from tailtap.host.privileges import missing_capabilities
from tailtap.host.sockets import AF_XDP, OPTIONS, refusal
from tailtap.platform import PLATFORMS, Dut, Wanted
from tailtap.topology.lab import Lab
from tailtap.traffic.sizes import MIN_SIZE

AREA = "kernel"
PROBE_CPU = 0


def check_kernel() -> Iterator[Check]:
    """Privileges, then everything that ``tailtap run`` asks of the kernel."""
    privileged = _privileges()
    yield privileged
    if privileged.state == "ok":
        yield from _check_lab()
    else:
        for name in ("namespaces and veth", "receive steering", "eBPF taps", "redirection"):
            found = "only root can try it"
            yield Check(AREA, name, "untested", found, "run it with sudo", required=True)
    yield _socket("AF_PACKET", int(socket.AF_PACKET), required=True)
    yield _socket("AF_XDP", AF_XDP, required=False)
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
    with contextlib.ExitStack() as stack:
        device: Dut | None = None
        try:
            lab = stack.enter_context(Lab(MIN_SIZE))
            device = PLATFORMS["bare-metal"].build(lab, Wanted((PROBE_CPU,)))
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
        yield _tried("eBPF taps", "both taps were loaded, attached and stopped", _tap(lab))
        assert device is not None
        yield from _redirection(device)


def _tap(lab: Lab) -> Callable[[], object]:
    def attempt() -> object:
        with tempfile.TemporaryDirectory(prefix="tt-") as folder:
            process = TAPS["inline"].start(lab.tap, Path(folder), 1024)
            try:
                return TAPS["inline"].stop(process)
            finally:
                process.close()

    return attempt


def _tried(name: str, success: str, attempt: Callable[[], object]) -> Check:
    try:
        attempt()
    except TailtapError as error:
        remedy = "Linux 5.12 or newer with CONFIG_BPF_SYSCALL and CONFIG_NET_CLS_BPF"
        return Check(AREA, name, "missing", str(error), remedy, required=True)
    return Check(AREA, name, "ok", success, required=True)


def _redirection(device: Dut) -> Iterator[Check]:
    """Which classifiers can send all packets to another port; one is enough."""
    working: list[str] = []
    for name in CLASSIFIERS:
        with contextlib.suppress(MachineError):
            install(device, [name])
            working.append(name)
    lacking = [name for name in CLASSIFIERS if name not in working]
    if working:
        found = f"mirred with {', '.join(working)}"
        found += f"; not with {', '.join(lacking)}" if lacking else ""
        yield Check(AREA, "redirection", "ok", found, required=True)
    else:
        remedy = "a kernel with CONFIG_NET_ACT_MIRRED and CONFIG_NET_CLS_MATCHALL"
        found = f"mirred works with none of {', '.join(lacking)}"
        yield Check(AREA, "redirection", "missing", found, remedy, required=True)


def _socket(name: str, family: int, *, required: bool) -> Check:
    error = refusal(family)
    if error is None:
        return Check(AREA, name, "ok", "a socket can be opened", required=required)
    if error.errno in (errno.EPERM, errno.EACCES):
        return Check(AREA, name, "untested", "not permitted", "run it with sudo", required)
    remedy = f"a kernel with {OPTIONS[family]}"
    return Check(AREA, name, "missing", str(error.strerror), remedy, required)


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
