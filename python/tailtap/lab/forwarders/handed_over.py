"""Ports that a program in user space drives, on the PCI bus: taken from the kernel for a run.

On this machine, which containers share, they are network cards: bound to vfio-pci, and back
afterwards. In a virtual machine they are what the guest has for ports, virtio devices or cards
that are passed through. These stay with their driver until the guest ends with its run.
"""

from __future__ import annotations

import contextlib
from typing import Any, Literal, TypeAlias

from tailtap.base.check import Findings
from tailtap.base.errors import InputError, MachineError
from tailtap.host.net.pci import VFIO, address_of
from tailtap.lab.forwarders.setting import Asked, Setting
from tailtap.lab.platforms.dut import Dut
from tailtap.lab.topology.graph import Port

UIO = "uio_pci_generic"
"""The kernel's driver for devices that no IOMMU keeps to the memory of their program."""
PciDriver: TypeAlias = Literal["vfio-pci", "uio_pci_generic"]
DRIVERS: tuple[PciDriver, ...] = ("vfio-pci", "uio_pci_generic")

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
