"""What forwarders on DPDK share: ports, memory, CPUs.

On links of the lab, DPDK drives the ports through the kernel: by AF_PACKET sockets, or by AF_XDP
ones. On request, DPDK's own driver takes over a network card.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from tailtap.host.changes.huge_pages import Pages, require_possible, reserved
from tailtap.host.net.pci import address_of
from tailtap.kinds.findings import Findings
from tailtap.lab.forwarders.setting import Asked, Need, Setting
from tailtap.lab.platforms.dut import Dut
from tailtap.lab.topology.graph import Port
from tailtap.lab.topology.numbering import NEXT_HOP_MAC
from tailtap.records.errors import InputError, MachineError
from tailtap.records.schema import Size, Strict
from tailtap.remote import Host
from tailtap.remote.local import LocalHost

READY_SECONDS = 20.0
"""How long DPDK may take until its first packet: it maps memory and opens ports."""
VERSION = re.compile(r"RTE Version: '(.+)'")
MEMORY = 256 * 2**20
"""Bytes: the packet buffers of two ports take some 40 MB."""
MAX_FRAME = 1518
"""Bytes with the check sequence: the buffers of DPDK's programs hold 2 KiB, headroom included."""
FRAMES = 4096
"""Frames that each ring of AF_PACKET holds (8 MiB), so that a short stall loses no packet."""

TESTPMD = Need("dpdk-testpmd", "apt-get install dpdk-dev, or run `make forwarders`")

# Debian has a package for each driver; elsewhere they may be part of the program.
_DRIVER = """for folder in /usr/lib/*/dpdk/pmds-*; do
    [ -d "$folder" ] || exit 0
    for name in "$@"; do
        ls "$folder/librte_$name.so"* > /dev/null 2>&1 || { echo "$name"; exit 1; }
    done
done"""


class DpdkOptions(Strict):
    """How DPDK gets at ports and memory."""

    driver: Literal["af_packet", "af_xdp", "vfio-pci"] = Field(
        default="af_packet",
        description="How DPDK accesses the ports. af_packet and af_xdp go through the kernel, on "
        "any link. vfio-pci takes the network cards in dut.ports from the kernel and returns them "
        "afterwards; it needs an IOMMU, and cards alone in their IOMMU groups.",
        examples=["af_xdp"],
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
        return [*self.memory, *(word for device in self.devices for word in device)]


def ports(dut: Dut, options: DpdkOptions, setting: Setting, stack: contextlib.ExitStack) -> Ports:
    """Prepare ports and memory; `stack` undoes it.

    Raises `MachineError` when this machine cannot, `InputError` for packets that do not fit.
    """
    _require_fitting(options, setting.asked(dut))
    _require_drivers(dut.host, options)
    devices: list[tuple[str, str]] = []
    names: list[str] = []
    for number, port in enumerate((dut.ingress, dut.egress)):
        if options.driver == "vfio-pci":
            address = stack.enter_context(setting.lab.handed_over(Port(dut.node, port)))
            devices.append(("--allow", address))
            names.append(address)
        else:
            name = f"net_{options.driver}{number}"
            ring = f",framecnt={FRAMES}" if options.driver == "af_packet" else ""
            devices.append(("--vdev", f"{name},iface={port}{ring}"))
            names.append(name)
    huge, why = _huge_pages(dut.host, options, setting, stack)
    prefix = f"tt-{setting.lab.journal.identity}"
    # Without files that others could share: nothing is left in /run/dpdk or on a hugetlbfs.
    memory = ["-v", "--no-telemetry", "--no-shconf", "--file-prefix", prefix]
    memory += ["-m", str(options.memory // 2**20)]
    memory += ["--in-memory"] if huge else ["--no-huge"]
    memory += [] if options.driver == "vfio-pci" else ["--no-pci"]
    facts = {"driver": options.driver, "huge_pages": huge}
    return Ports(memory, devices, names, facts | ({"huge_pages_reason": why} if why else {}))


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
    if options.driver == "vfio-pci" and not asked.own_kernel:
        for card in asked.cards:
            findings.ask(address_of, card)
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
    if options.driver == "vfio-pci" and asked.own_kernel:
        raise InputError(
            "dut.options.driver: vfio-pci takes cards of this machine, which a virtual machine "
            "does not see: leave it out"
        )
    if options.driver == "vfio-pci" and not asked.cards:
        raise InputError(
            "dut.options.driver: vfio-pci drives network cards, and the DuT's ports are links of "
            "the lab: name its cards with --set dut.ports='[INGRESS, EGRESS]' and the cards at the "
            "other ends of their cables with --set tap.ports='[BEFORE, BEHIND]', or choose another "
            "driver"
        )


def _require_drivers(host: Host, options: DpdkOptions) -> None:
    """Raises `MachineError` when the driver for links of the lab is missing on `host`."""
    if options.driver == "vfio-pci":
        return
    names = ["mempool_ring", f"net_{options.driver}"]
    asked = host.run(["sh", "-c", _DRIVER, "drivers", *names], check=False)
    if asked.status != 0:
        name = asked.stdout.strip()
        raise MachineError(
            f"DPDK's driver {name} is missing on {host.name}: apt-get install "
            f"librte-{name.replace('_', '-')}23, or run `make forwarders`"
        )


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
        # tailtap reserves no huge pages of another kernel.
        _require_free(host, options.memory)
    except MachineError as error:
        if options.huge_pages:
            raise
        return False, str(error)
    return True, None


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
