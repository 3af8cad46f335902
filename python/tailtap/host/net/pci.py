"""Network cards by their place on the PCI bus: handing them to vfio-pci or uio, and back.

A card that a program in user space drives must leave the kernel's driver (Documentation/driver-api/
vfio.rst of the kernel). That is asked for explicitly, never done to the interface that this machine
is reached by, and undone afterwards; `cards.VfioCard` is that change.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

from tailtap.base.errors import InputError, MachineError
from tailtap.base.files import read_text, set_value
from tailtap.base.locks import wait_until
from tailtap.host.changes.resource import Value
from tailtap.host.facts.machine import entries
from tailtap.host.knobs.tree import Tree
from tailtap.host.net.cards import CardState, OfCard, link, restore
from tailtap.host.net.namespaces import ports
from tailtap.remote.local import LocalHost

ROOT = Path("/")
PciDriver: TypeAlias = Literal["vfio-pci", "uio_pci_generic"]
VFIO: PciDriver = "vfio-pci"
UIO: PciDriver = "uio_pci_generic"
"""The kernel's driver for devices that no IOMMU keeps to the memory of their program."""
DRIVERS: tuple[PciDriver, ...] = (VFIO, UIO)
BIND_SECONDS = 5.0
"""How long a driver may take to let go of a card, or to take it and to name its interface."""
NO_IOMMU = "switch on VT-d or AMD-Vi in the firmware and boot with intel_iommu=on or amd_iommu=on"
_DEVICES = "sys/bus/pci/devices"
_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def interface_of(card: str, root: Path = ROOT) -> str:
    """What the kernel calls a card that is given by its PCI address; other names as they are.

    Raises `InputError` for an address without a card, `MachineError` for one without an interface.
    """
    if not _ADDRESS.fullmatch(card):
        return card
    device = root / _DEVICES / card
    if not device.exists():
        raise InputError(f"there is no device {card} on the PCI bus of this machine: `lspci -D`")
    names = [path.name for path in entries(device / "net")]
    if not names:
        driver = driver_of(card, root)
        raise MachineError(
            f"{card} is no network interface, as "
            f"{'it has no driver' if driver is None else f'its driver is {driver}'}: give it back "
            f"to the kernel (`dpdk-devbind.py --bind=DRIVER {card}`); tailtap hands it over itself"
        )
    return names[0]


def address_of(interface: str, root: Path = ROOT, driver: PciDriver = VFIO) -> str:
    """The PCI address of a network interface that `driver` is to have.

    Raises `MachineError` for one that may not or cannot be handed over, with the reason.
    """
    device = root / "sys/class/net" / interface / "device"
    if not device.exists():
        raise MachineError(
            f"{interface} is no network card: driver: {driver} is for cards on the PCI bus, "
            "leave it out for links of the lab"
        )
    address = device.resolve().name
    if not _ADDRESS.fullmatch(address):
        raise MachineError(f"{interface} is not on the PCI bus ({address}): leave driver out")
    if interface in Tree(root).default_route():
        raise MachineError(
            f"{interface} has the default route: without it this machine cannot be reached: choose "
            "another card"
        )
    if driver == VFIO:
        require_iommu(root)
        require_apart(device.resolve(), interface, root)
    require_driver(root, driver)
    return address


def require_iommu(root: Path = ROOT) -> None:
    """Raises `MachineError` on a machine without an IOMMU."""
    if iommu_groups(root) == 0:
        raise MachineError(f"vfio-pci needs an IOMMU and this machine has none: {NO_IOMMU}")


def require_driver(root: Path = ROOT, driver: PciDriver = VFIO) -> None:
    """Raises `MachineError` where the driver is not loaded."""
    if not (root / "sys/bus/pci/drivers" / driver).exists():
        raise MachineError(f"the driver {driver} is missing: load it with `modprobe {driver}`")


def require_apart(device: Path, name: str | None = None, root: Path = ROOT) -> None:
    """Raises `MachineError` where the IOMMU cannot keep a device apart from others in use.

    `device` is its folder, and `name` what a user calls it.
    """
    group = device / "iommu_group"
    others = [path.name for path in entries(group / "devices") if path.name != device.name]
    busy = [other for other in others if driver_of(other, root) not in (None, VFIO, "pcieport")]
    if busy:
        raise MachineError(
            f"{name or device.name} shares its IOMMU group with {busy[0]}, which the kernel uses: "
            "choose a card in a group of its own"
        )


def iommu_groups(root: Path = ROOT) -> int:
    """How many groups of devices the IOMMU keeps apart; 0 without one."""
    return len(entries(root / "sys/kernel/iommu_groups"))


def bind_back(address: str, driver: str | None, interface: str, root: Path = ROOT) -> None:
    """Give a card back to `driver`, which calls it `interface`. Raises `MachineError`."""
    if driver is None:
        release(address, root)
        return
    if driver_of(address, root) != driver:
        bind(address, driver, root)
    _wait_until_seen(address, interface, root)


def bind(address: str, driver: str, root: Path) -> None:
    """Make `driver` take the card, and read back that it did."""
    release(address, root)
    _write(root / _DEVICES / address / "driver_override", driver if driver in DRIVERS else "\n")
    probe(address, root)
    if not wait_until(lambda: driver_of(address, root) == driver, BIND_SECONDS, 0.01):
        raise MachineError(f"the driver {driver} does not take the card {address}")


def probe(address: str, root: Path = ROOT) -> None:
    """Have the kernel look for a driver of the card. Raises `MachineError`."""
    _write(root / "sys/bus/pci/drivers_probe", address)


def _wait_until_seen(address: str, interface: str, root: Path) -> None:
    """Return when the card is called `interface` again; raises `MachineError` when it never is.

    A driver that takes a card gives it a name of its own, which services may then change.
    """
    deadline = time.monotonic() + BIND_SECONDS
    while interface not in (names := [p.name for p in entries(root / _DEVICES / address / "net")]):
        if time.monotonic() > deadline:
            raise MachineError(f"the card {address} does not come back as {interface}")
        for name in names:
            rename = ["ip", "link", "set", "dev", name, "down", "name", interface]
            LocalHost().run(rename, check=False)
        time.sleep(0.05)


def release(address: str, root: Path = ROOT) -> None:
    """Take the card from its driver, if it has one. Raises `MachineError`."""
    if driver_of(address, root) is not None:
        _write(root / _DEVICES / address / "driver/unbind", address)


def driver_of(address: str, root: Path = ROOT) -> str | None:
    """The driver that has the card now."""
    link = root / _DEVICES / address / "driver"
    return link.resolve().name if link.exists() else None


def _write(path: Path, text: str) -> None:
    try:
        set_value(path, text)
    except OSError as error:
        raise MachineError(f"cannot change the driver: {error.strerror}").at(path) from error


@dataclass(frozen=True)
class VfioCard(OfCard):
    """A card that is bound to vfio-pci or uio instead of the kernel's driver."""

    kind: ClassVar[str] = "pci-driver"

    address: str
    """Its place on the PCI bus."""
    root: str = "/"
    mac: str = ""
    alias: str = ""
    """By which a kernel finds the driver of such cards; modules.alias of depmod(8)."""
    driver: PciDriver = VFIO

    @classmethod
    def of(cls, interface: str, driver: PciDriver = VFIO) -> VfioCard:
        """A card of this machine. Raises `InputError`, `MachineError` when a lab cannot use it."""
        before, address = CardState.of(interface), address_of(interface, driver=driver)
        alias = read_text(ROOT / "sys/bus/pci/devices" / address / "modalias")
        return cls(interface, address, mac=before.address, alias=alias or "", driver=driver)

    @property
    def label(self) -> str:
        return f"{self.address} {self.interface}"

    def read(self) -> dict[str, Any]:
        card = asdict(CardState.of(self.interface)) if self.interface in ports(None) else None
        return {"driver": driver_of(self.address, Path(self.root)), "card": card}

    def plan(self) -> dict[str, Any]:
        return {"driver": self.driver}

    def apply(self) -> Value:
        bind(self.address, self.driver, Path(self.root))
        return self.plan()

    def undo(self, old: Mapping[str, Any], applied: Value = None) -> str | None:
        root = Path(self.root)
        now = driver_of(self.address, root)
        if now not in (self.driver, old["driver"], None):
            return (
                f"somebody else bound the card {self.label} to {now}, which is left so: before "
                f"tailtap it was {old['driver'] or 'without a driver'}"
            )
        if now == old["driver"] and applied is None:
            return None
        bind_back(self.address, old["driver"], self.interface, root)
        if old["card"] is not None:
            restore(CardState(**old["card"]))
        return None

    def pending(self, old: Mapping[str, Any], applied: Value = None) -> bool:
        if driver_of(self.address, Path(self.root)) != old["driver"]:
            return True
        row = None if applied is None or old["card"] is None else link(None, self.interface)
        if row is None:
            return applied is not None and old["card"] is not None
        before = CardState(**old["card"])
        return (row["mtu"], "UP" in row["flags"]) != (before.mtu, before.up)
