"""What forwarders on DPDK share: ports, memory, CPUs.

On links of the lab, DPDK drives the ports through the kernel: by AF_PACKET sockets, or by AF_XDP
ones. On request, DPDK's own driver takes over a network card, or a port of a virtual machine.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from tailtap.base.check import Findings
from tailtap.base.errors import InputError, MachineError
from tailtap.base.schema import Size, Strict
from tailtap.host.changes.huge_pages import Pages, require_possible, reserved
from tailtap.host.changes.kernel_values import KernelValue
from tailtap.host.facts.dpdk import require_drivers
from tailtap.lab.forwarders.handed_over import DRIVERS, UIO, foresee_handing, handed_over
from tailtap.lab.forwarders.setting import Asked, Need, Setting
from tailtap.lab.platforms.dut import Dut
from tailtap.lab.topology.numbering import NEXT_HOP_MAC
from tailtap.remote import Host
from tailtap.remote.local import LocalHost

READY_SECONDS = 20.0
"""How long DPDK may take until its first packet: it maps memory and opens ports."""
VERSION = re.compile(r"RTE Version: '(.+)'")
MEMORY = 256 * 2**20
"""Bytes: the packet buffers of two ports take some 40 MB."""
MAX_FRAME = 1518
"""Bytes with the check sequence: the buffers of DPDK's programs hold 2 KiB, headroom included."""
KEY = "dut.options.driver"
HUGE_PAGE = 2 * 2**20
"""Bytes of a huge page that a virtual machine reserves."""
LOGGED = "--log-level=pmd.net.af_xdp:info"
"""What became of busy polling is in the log."""
DEFERRING = {"napi_defer_hard_irqs": "2", "gro_flush_timeout": "200000"}
"""For how many empty polls a port's interrupt stays off, and for how long (ns) after the last one;
the values of DPDK's guide to its driver AF_XDP."""
WRITE = 'value=$1; shift; for file; do echo "$value" > "$file"; done'
FRAMES = 4096
"""Frames that each ring of AF_PACKET holds (8 MiB), so that a short stall loses no packet."""

TESTPMD = Need("dpdk-testpmd", "apt-get install dpdk-dev, or run `make forwarders`")


class DpdkOptions(Strict):
    """How DPDK gets at ports and memory."""

    driver: Literal["af_packet", "af_xdp", "vfio-pci", "uio_pci_generic"] = Field(
        default="af_packet",
        description="How DPDK accesses the ports. af_packet and af_xdp go through the kernel, on "
        "any link. vfio-pci takes the network cards in dut.ports from the kernel and returns them "
        "afterwards; it needs an IOMMU, and cards alone in their IOMMU groups. In a virtual "
        "machine it takes whatever the ports are, and needs dut.iommu; uio_pci_generic, for "
        "virtual machines only, needs none.",
        examples=["af_xdp"],
    )
    busy_budget: Annotated[int, Field(ge=0, le=65_535)] | None = Field(
        default=None,
        description="With driver af_xdp: how many packets the kernel takes at most when the "
        "program has it poll a port (preferred busy polling, Linux 5.11). Interrupts of the ports "
        "are put off meanwhile, for up to 200 us after the last poll. 0: the program only looks at "
        "its ring, and the kernel polls as always. By default 64 packets, and no interrupt is put "
        "off.",
        examples=[32],
    )
    huge_pages: bool | None = Field(
        default=None,
        description="Whether DPDK's memory is on huge pages: true reserves them for the run, or "
        "the run fails. By default huge pages are used where they are available.",
        examples=[True],
    )
    memory: Size = Field(
        default=MEMORY,
        description="How much memory DPDK reserves.",
        examples=["512 MiB"],
    )


@dataclass(frozen=True)
class Ports:
    """The options of a DPDK program for memory and ports."""

    memory: Sequence[str]
    """Options of the environment abstraction layer (EAL), without ports and CPUs."""
    devices: Sequence[tuple[str, str]]
    """The option that names a port, ``--vdev`` or ``--allow``, and its value; ingress first."""
    names: Sequence[str]
    """What DPDK calls the ports, ingress first."""
    facts: dict[str, Any]
    """Facts for ``run.json``."""

    def arguments(self) -> list[str]:
        """All of it as words."""
        return [*self.memory, LOGGED, *(word for device in self.devices for word in device)]


def ports(dut: Dut, options: DpdkOptions, setting: Setting, stack: contextlib.ExitStack) -> Ports:
    """Prepare ports and memory; `stack` undoes it.

    Raises `MachineError` when this machine cannot, `InputError` for packets that do not fit.
    """
    _require_fitting(options, setting.asked(dut))
    _require_drivers(dut.host, options)
    if options.driver in DRIVERS:
        names, facts = handed_over(dut, options.driver, setting, stack, KEY)
        devices = [("--allow", name) for name in names]
    else:
        facts = {"driver": options.driver}
        names = [f"net_{options.driver}{number}" for number in range(2)]
        ring = f",framecnt={FRAMES}" if options.driver == "af_packet" else ""
        if options.busy_budget is not None:
            ring += f",busy_budget={options.busy_budget}"
            facts["busy_budget"] = options.busy_budget
        if options.busy_budget:
            _defer_interrupts(dut, setting, stack)
        devices = [
            ("--vdev", f"{name},iface={port}{ring}")
            for name, port in zip(names, (dut.ingress, dut.egress), strict=True)
        ]
    huge, why = _huge_pages(dut.host, options, setting, stack)
    prefix = f"tt-{setting.lab.journal.identity}"
    # Without files that others could share: nothing is left in /run/dpdk or on a hugetlbfs.
    memory = ["-v", "--no-telemetry", "--no-shconf", "--file-prefix", prefix]
    memory += ["-m", str(options.memory // 2**20)]
    memory += ["--in-memory"] if huge else ["--no-huge"]
    memory += [] if options.driver in DRIVERS else ["--no-pci"]
    facts |= {"huge_pages": huge, **({"huge_pages_reason": why} if why else {})}
    return Ports(memory, devices, names, facts)


def next_hops(dut: Dut, setting: Setting) -> tuple[str, str]:
    """The hardware addresses that packets are sent to out of both ports, ingress first."""
    onward = {
        way.left.name: way.next.mac for way in setting.lab.ways[dut.node] if way.next is not None
    }
    ingress, egress = (onward.get(port, NEXT_HOP_MAC) for port in (dut.ingress, dut.egress))
    return ingress, egress


def foresee(options: DpdkOptions, asked: Asked, findings: Findings) -> None:
    """Find out what `ports` would miss on this machine."""
    findings.ask(_require_fitting, options, asked)
    findings.ask(_require_drivers, LocalHost(), options)
    if options.driver in DRIVERS:
        foresee_handing(options.driver, asked, findings, KEY)
    if options.huge_pages and not asked.own_kernel:
        findings.ask(require_possible, options.memory, Pages.smallest())


def lcores(cpus: Sequence[int], *, idle_main: bool = False) -> list[str]:
    """The option that runs logical cores 0, 1, … of DPDK on `cpus`.

    With `idle_main` there is one more, in front and on the first CPU too: the main one of testpmd,
    which sleeps while the others forward.
    """
    places = [cpus[0], *cpus] if idle_main else list(cpus)
    return ["--lcores", ",".join(f"{number}@{cpu}" for number, cpu in enumerate(places))]


def _require_fitting(options: DpdkOptions, asked: Asked) -> None:
    """Raises `InputError` for options or traffic that DPDK cannot handle."""
    largest = asked.largest
    if largest > MAX_FRAME:
        raise InputError(
            f"traffic.size: DPDK's programs hold packets of up to {MAX_FRAME} B, not {largest} B: "
            "lower it"
        )
    if options.busy_budget is not None and options.driver != "af_xdp":
        raise InputError(
            f"dut.options.busy_budget: {options.driver} has no busy polling: take driver: af_xdp"
        )
    if options.driver == UIO and options.huge_pages is False:
        raise InputError(
            f"dut.options.huge_pages: {UIO} gives devices physical addresses, which only huge "
            "pages keep: leave it out"
        )


def _require_drivers(host: Host, options: DpdkOptions) -> None:
    """Raises `MachineError` when the driver for links of the lab is missing on `host`."""
    if options.driver not in DRIVERS:
        require_drivers(host, ["mempool_ring", f"net_{options.driver}"])


def _huge_pages(
    host: Host, options: DpdkOptions, setting: Setting, stack: contextlib.ExitStack
) -> tuple[bool, str | None]:
    """Whether memory is on huge pages and, where the option is not given, why not."""
    if options.huge_pages is False:
        return False, None
    try:
        if not host.own_kernel:
            stack.enter_context(reserved(options.memory, setting.lab.journal))
            return True, None
        if options.driver in DRIVERS:
            _reserve(host, options.memory)
        _require_free(host, options.memory)
    except MachineError as error:
        if options.huge_pages or options.driver == UIO:
            raise
        return False, str(error)
    return True, None


def _defer_interrupts(dut: Dut, setting: Setting, stack: contextlib.ExitStack) -> None:
    """Have the kernel not poll the ports by itself as long as the program does.

    Documentation/networking/napi.rst of the kernel: busy polling.
    """
    for name, value in DEFERRING.items():
        paths = [f"/sys/class/net/{port}/{name}" for port in (dut.ingress, dut.egress)]
        if dut.host.own_kernel:
            dut.host.run(["sh", "-ec", WRITE, "write", value, *paths])
        else:
            where = setting.lab.name_of(dut.node)
            hint = "dut.options.busy_budget: interrupts cannot be put off (Linux 5.11)"
            change = KernelValue(paths, value, namespace=where, hint=hint)
            stack.enter_context(setting.lab.journal.held(change))


def _reserve(host: Host, size: int) -> None:
    """Reserve huge pages in a virtual machine, as far as it can; they end with it."""
    count, file = -(-size // HUGE_PAGE), "/proc/sys/vm/nr_hugepages"
    host.run(["sh", "-c", "read -r n < $1; echo $((n + $2)) > $1", "reserve", file, str(count)])


def _require_free(host: Host, size: int) -> None:
    told = host.run(["cat", "/proc/meminfo"]).stdout
    found = {key: int(value) for key, value in re.findall(r"^(Huge\w+):\s+(\d+)", told, re.M)}
    free, kib = found.get("HugePages_Free", 0), found.get("Hugepagesize", 2048)
    count = -(-size // (kib * 1024))
    if free < count:
        raise MachineError(
            f"{count} huge pages of {kib} KiB are needed and {host.name} has {free} free: reserve "
            f"them at boot (dut.boot: hugepages={count}), or say dut.options.huge_pages: false"
        )
