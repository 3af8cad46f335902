"""Ports that a program in user space drives, on the PCI bus: taken from the kernel for a run.

On this machine, which containers share, they are network cards: bound to vfio-pci, and back
afterwards. In a virtual machine they are what the guest has for ports, virtio devices or cards
that are passed through. These stay with their driver until the guest ends with its run.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from tailtap.base.errors import Findings, InputError, MachineError
from tailtap.base.schema import Size, Strict
from tailtap.host.changes.huge_pages import Pages, require_possible, reservation
from tailtap.host.changes.kernel_values import KernelValue
from tailtap.host.facts.needs import require_drivers
from tailtap.host.net.pci import DRIVERS, UIO, VFIO, PciDriver, address_of
from tailtap.lab.forwarders.setting import Asked, Need, Setting
from tailtap.lab.platforms.dut import Dut
from tailtap.lab.topology.graph import Port
from tailtap.lab.topology.numbering import NEXT_HOP_MAC
from tailtap.remote import Host
from tailtap.remote.local import LocalHost

# A virtio device is the child of the PCI device that has its place on the bus.
_BIND = """port=$1 driver=$2
device=$(readlink -f "/sys/class/net/$port/device")
case ${device##*/} in virtio*) device=${device%/*} ;; esac
address=${device##*/}
modprobe "$driver" || exit 1
[ "$driver" = uio_pci_generic ] || [ -e "$device/iommu_group" ] || {
    echo "$port is behind no IOMMU" >&2; exit 1
}
echo "$driver" > "$device/driver_override"
echo "$address" > "$device/driver/unbind"
echo "$address" > /sys/bus/pci/drivers_probe
bound=$(readlink "$device/driver")
[ "${bound##*/}" = "$driver" ] || { echo "it does not take $port ($address)" >&2; exit 1; }
echo "$address" """


def handed_over(
    dut: Dut, driver: PciDriver | None, setting: Setting, stack: contextlib.ExitStack, key: str
) -> tuple[list[str], dict[str, Any]]:
    """The PCI addresses of the DuT's two ports, which have `driver` until `stack` is closed, and
    facts for ``run.json``. Without a `driver` their names: the kernel keeps them.

    `key` is what asks for it. Raises `InputError`, `MachineError`.
    """
    if driver is None:
        return [dut.ingress, dut.egress], {}
    require_handable(driver, setting.asked(dut), key)
    places = [_bound(dut, port, driver, setting, stack) for port in (dut.ingress, dut.egress)]
    return places, {"driver": driver, "iommu": driver == VFIO}


def _bound(
    dut: Dut, port: str, driver: PciDriver, setting: Setting, stack: contextlib.ExitStack
) -> str:
    if not dut.host.own_kernel:
        return stack.enter_context(setting.lab.handed_over(Port(dut.node, port)))
    bound = dut.host.run(["sh", "-c", _BIND, "bind", port, driver], check=False)
    if bound.status != 0:
        why = " ".join(bound.stderr.split()) or f"status {bound.status}"
        raise MachineError(f"the driver {driver} does not work in {dut.host.name}: {why}")
    return bound.stdout.strip()


def foresee_handing(driver: PciDriver, asked: Asked, findings: Findings, key: str) -> None:
    """Find out what `handed_over` would miss on this machine. `key` is what asks for it."""
    if findings.ask(require_handable, driver, asked, key) is None or asked.own_kernel:
        return
    for card in asked.cards:
        findings.ask(address_of, card)


def require_handable(driver: PciDriver, asked: Asked, key: str) -> bool:
    """Raises `InputError` where the DuT has no ports that `driver` could have."""
    if asked.own_kernel:
        if driver == VFIO and not asked.iommu:
            raise InputError(
                "vfio-pci needs an IOMMU in the virtual machine: say dut.iommu: true, or "
                f"drive its ports without one by {UIO}"
            ).at(key)
        return True
    if driver == UIO:
        raise InputError(
            f"{UIO} lets a device write anywhere, which is for a virtual machine alone: "
            "take vfio-pci"
        ).at(key)
    if not asked.cards:
        raise InputError(
            "vfio-pci drives network cards, and the DuT's ports are links of the lab: "
            "name its cards with --set dut.ports='[INGRESS, EGRESS]' and the cards at "
            "the other ends of their cables with --set tap.ports='[BEFORE, BEHIND]', "
            "or choose another driver"
        ).at(key)
    return True


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
        description="How DPDK accesses the ports. af_packet and af_xdp go through the kernel. "
        "vfio-pci takes the network cards in dut.ports from the kernel and returns "
        "them; it needs an IOMMU, in a virtual machine dut.iommu. uio_pci_generic, "
        "for virtual machines only, needs none.",
        examples=["af_xdp"],
    )
    busy_budget: Annotated[int, Field(ge=0, le=65_535)] | None = Field(
        default=None,
        description="With driver af_xdp: how many packets the kernel takes at most when the "
        "program has it poll a port (preferred busy polling, Linux 5.11), while "
        "interrupts are put off for up to 200 us. 0: the kernel polls as always. By "
        "default 64 packets, and no interrupt is put off.",
        examples=[32],
    )
    huge_pages: bool | None = Field(
        default=None,
        description="Whether DPDK's memory is on huge pages: with true or the run fails. By "
        "default where they are available.",
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

    def arguments(self) -> list[str]:
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
            stack.enter_context(setting.lab.journal.held(reservation(options.memory)))
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
